//! Tables that are mined of a repository.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use hyper::header::HeaderValue;
use serde::Serialize;
use sha2::{Digest, Sha256};
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::{IntoParams, ToSchema};
use weir_ground::{Stop, hex};
use weir_serve::{BodyWriter, Effort};
use weir_tables::{RowFormat, TableKind, write_table};

use crate::answer::{ApiResult, FileBytes, TAG_BYTES, json, streamed};
use crate::problem::{NotModified, Problem, Problems};
use crate::request::ApiRequest;
use crate::state::ApiState;

/// A column of a table.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct ColumnEntry {
    name: &'static str,
    /// `text`, `number`, `flag`, `time`, `bytes`, or `id`: the bytes of the id of an object.
    r#type: &'static str,
    /// Whether it may be null.
    is_nullable: bool,
}

/// A table that is mined of a repository.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct TableEntry {
    name: &'static str,
    /// The meaning of its rows.
    description: &'static str,
    /// Its columns, in order.
    columns: Vec<ColumnEntry>,
}

/// Lists the tables that are mined of each repository, with their columns.
#[utoipa::path(
    get, operation_id = "listTables", path = "/api/v1/tables", tag = "tables",
    responses((status = 200, description = "The tables.", body = Vec<TableEntry>), NotModified, Problems)
)]
pub(crate) async fn list(_: Arc<ApiState>, request: ApiRequest) -> ApiResult {
    request.parameters.end()?;
    let column = |(name, kind, is_nullable)| ColumnEntry { name, r#type: kind, is_nullable };
    let table = |table: &TableKind| TableEntry {
        name: table.name(),
        description: table.words(),
        columns: table.column_types().map(column).collect(),
    };
    json(&request.headers, &TableKind::ALL.iter().map(table).collect::<Vec<_>>())
}

/// A table of a repository.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes parameters")]
struct NamedTable {
    /// Its name, percent-encoded, or its number.
    repository: String,
    /// The name of the table.
    table: String,
}

/// Describes the formats.
fn format_schema() -> Object {
    let names = RowFormat::ALL.map(RowFormat::name);
    let kind = ObjectBuilder::new().schema_type(Type::String);
    kind.enum_values(Some(names)).default(Some(RowFormat::Json.name().into())).build()
}

/// The rows that a client wants.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes parameters")]
struct WantedRows {
    /// `parquet`, `arrow` (the streaming format), `csv`, `json` or `jsonl`.
    #[param(schema_with = format_schema)]
    format: Option<RowFormat>,
    /// Names of columns, with commas between them; all, if it is not there.
    columns: Option<String>,
}

/// Sends a table of a repository, mined while it is sent: what the refs reach now, as `weir mine` writes it.
/// The tables `origin_visit` and `ref_change` hold all states that the refs had.
#[utoipa::path(
    get, operation_id = "getTable",
    path = "/api/v1/repositories/{repository}/tables/{table}", tag = "tables",
    params(NamedTable, WantedRows),
    responses(
        (status = 200, description = "The rows.", content(
            (Vec<Object> = "application/json"), (FileBytes = "application/jsonl"),
            (FileBytes = "text/csv"), (FileBytes = "application/vnd.apache.parquet"),
            (FileBytes = "application/vnd.apache.arrow.stream")
        )),
        NotModified,
        Problems
    )
)]
pub(crate) async fn content(state: Arc<ApiState>, mut request: ApiRequest) -> ApiResult {
    let name = request.part(1)?;
    let table = TableKind::ALL.iter().copied().find(|table| table.name() == name);
    let table = table.ok_or_else(|| Problem::not_found(format!("there is no table '{name}'")))?;
    let word = request.parameters.text("format")?.unwrap_or_else(|| RowFormat::Json.name().to_owned());
    let format = RowFormat::ALL.into_iter().find(|format| format.name() == word).ok_or_else(|| {
        let names = RowFormat::ALL.map(RowFormat::name).join(", ");
        Problem::bad_request(format!("the parameter 'format' must be one of {names}"))
    })?;
    let columns = columns_of(table, request.parameters.text("columns")?.as_deref())?;
    request.parameters.end()?;
    let opened = state.open_origin(&request).await?;
    let mut sum = Sha256::new();
    sum.update(format!("{} of {} as {word}", table.name(), opened.origin));
    sum.update(opened.sum());
    columns.iter().for_each(|column| sum.update(format!(",{column}")));
    let key: [u8; 32] = sum.finalize().into();
    let etag = format!("W/\"{}\"", hex(&key[..TAG_BYTES]));
    let base = opened.repository.name.rsplit('/').next().unwrap_or_default();
    let name = format!("{base}-{}.{word}", table.name());
    let kind = HeaderValue::from_static(format.media_type());
    let (mut response, is_there) = streamed(&request.headers, &etag, kind, &name);
    if is_there {
        return Ok(response);
    }
    let now = state.now();
    let write = move |out: &mut BodyWriter| {
        write_table(&opened.present(now), table, &columns, format, out, &Stop::default()).map_err(|e| match e
        {
            weir_mine::Error::Output(e) => e,
            e => {
                tracing::error!(path = %opened.repo.path().display(), "a table broke off: {e}");
                io::Error::other(e)
            }
        })
    };
    *response.body_mut() = request.client.stream(Effort::Open, key, write).await?;
    Ok(response)
}

/// Returns the columns of `table` that `names` lists, or all.
fn columns_of(table: TableKind, names: Option<&str>) -> Result<BTreeSet<&'static str>, Problem> {
    let Some(names) = names else { return Ok(table.column_names().collect()) };
    let known: Vec<&'static str> = table.column_names().collect();
    let find = |name: &str| {
        let found = known.iter().copied().find(|column| *column == name);
        found.ok_or_else(|| {
            let words =
                format!("the table {} has no column '{name}'; it has {}", table.name(), known.join(", "));
            Problem::bad_request(words)
        })
    };
    names.split(',').map(find).collect()
}
