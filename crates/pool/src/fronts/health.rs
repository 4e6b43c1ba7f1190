//! Whether the server is alive (`/healthz`) and ready for clients (`/readyz`), for load balancers and
//! monitors.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{ALLOW, HeaderValue};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use tokio::sync::watch;
use weir_catalog::Catalog;
use weir_serve::{HandlerAnswer, HandlerClient, HttpAdmission, HttpHandler};

use crate::error::Result;
use crate::fronts::plain_answer::plain_answer;
use crate::running::Pool;

const ALIVE: &str = "/healthz";
const READY: &str = "/readyz";

/// Says how the server is.
pub struct HealthFront {
    catalog: Arc<Mutex<Catalog>>,
    store: PathBuf,
    /// Becomes true when somebody asks the server to stop.
    asked_to_stop: watch::Receiver<bool>,
}

impl HealthFront {
    /// Returns the front for `pool`.
    ///
    /// # Errors
    /// If the catalog cannot be opened.
    pub fn new(pool: &Pool, asked_to_stop: watch::Receiver<bool>) -> Result<HealthFront> {
        let catalog = Arc::new(Mutex::new(pool.another_catalog()?));
        Ok(HealthFront { catalog, store: pool.store.path.clone(), asked_to_stop })
    }
}

impl HttpHandler for HealthFront {
    fn reserves(&self, path: &str) -> bool {
        matches!(path, ALIVE | READY)
    }

    fn admit(&self, head: &Parts) -> HttpAdmission {
        match head.uri.path() {
            ALIVE | READY if head.method != Method::GET && head.method != Method::HEAD => {
                let mut refusal = plain_answer(StatusCode::METHOD_NOT_ALLOWED, "GET it");
                refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                HttpAdmission::Answer(refusal)
            }
            ALIVE => HttpAdmission::Answer(plain_answer(StatusCode::OK, "alive")),
            READY => HttpAdmission::Body(0),
            _ => HttpAdmission::Foreign,
        }
    }

    fn answer(&self, _: Request<Bytes>, client: HandlerClient) -> HandlerAnswer<'_> {
        let (catalog, store, is_stopping) =
            (self.catalog.clone(), self.store.clone(), *self.asked_to_stop.borrow());
        Box::pin(async move {
            let look = move || {
                if is_stopping {
                    return Err("the server stops");
                }
                if !store.is_dir() {
                    return Err("the store is missing");
                }
                let catalog = catalog.lock().unwrap_or_else(PoisonError::into_inner);
                catalog.get_by_id(0).map(|_| ()).map_err(|_| "the catalog does not answer")
            };
            match client.run(look).await {
                Ok(Ok(())) => plain_answer(StatusCode::OK, "ready"),
                Ok(Err(why)) => plain_answer(StatusCode::SERVICE_UNAVAILABLE, why),
                Err(refusal) => plain_answer(StatusCode::SERVICE_UNAVAILABLE, refusal.words()),
            }
        })
    }
}
