//! `weir-bench catalog FOLDER|URL ROWS VISITS`: fills a catalog, in SQLite or PostgreSQL, then leases and
//! completes visits in batches, as the mirror does.

use std::time::Instant;

use weir_catalog::{Catalog, Listed, Outcome, Repository, Visit, Which};
use weir_ground::Timestamp;

/// The size of the batches that the mirror loop leases and records.
const BATCH: usize = 1000;
const PAGE: usize = 10_000;

/// Adds `rows` repositories, as a listing of a forge does.
fn fill(catalog: &Catalog, rows: usize) -> Result<(), crate::Error> {
    let mut listing = catalog.listings().begin("bench", "all", Timestamp(0))?;
    for first in (0..rows).step_by(PAGE) {
        let page: Vec<(String, Listed)> = (first..(first + PAGE).min(rows))
            .map(|n| {
                let full_name = format!("owner{}/repository{n}", n % 1000);
                let listed = Listed {
                    forge_id: n.to_string(),
                    clone_url: format!("https://forge.example/{full_name}.git"),
                    pushed_at: Some("2024-01-01T00:00:00Z".to_owned()),
                    full_name,
                    ..Listed::default()
                };
                (format!("forge.example/{}", listed.full_name), listed)
            })
            .collect();
        let next = (first + PAGE < rows).then(|| first.to_string());
        catalog.listings().take_page(&mut listing, &page, next.as_deref(), Timestamp(0))?;
    }
    Ok(())
}

pub(crate) fn run(place: &str, rows: usize, visits: usize) -> Result<(), crate::Error> {
    let catalog = match place.starts_with("postgres") {
        true => Catalog::connect(place)?,
        false => Catalog::open(&std::path::Path::new(place).join("catalog.db"))?,
    };
    let started = Instant::now();
    fill(&catalog, rows)?;
    let filled_s = started.elapsed().as_secs_f64();
    let (mut leasing_s, mut recording_s, mut done) = (0.0, 0.0, 0);
    let mut now = 1_000_000;
    while done < visits {
        let started = Instant::now();
        let leased = catalog.visits().lease(
            "bench",
            Timestamp(now),
            Timestamp(now + 3600),
            &Which { due_only: true, ..Which::default() },
            BATCH,
        )?;
        leasing_s += started.elapsed().as_secs_f64();
        if leased.is_empty() {
            return Err("nothing is due".into());
        }
        let visit = |n: usize, r: &Repository| Visit {
            id: r.id,
            epoch: r.epoch,
            began_at: Timestamp(now),
            at: Timestamp(now),
            next_due: Timestamp(now + 86_400 + (n as i64 * 7919) % 86_400),
            again_at: Timestamp(0),
            hints: 0,
            fingerprint: Some(vec![n as u8; 16]),
            changes: 1.0,
            watched_s: 3600.0,
            is_news: n.is_multiple_of(10),
            snapshot: Some([n as u8; 20]),
            lfs_missing: None,
            event: None,
            outcome: if n.is_multiple_of(10) {
                Outcome::Updated { seq: 2, archive_bytes: 1 << 20, ref_count: 7 }
            } else {
                Outcome::Unchanged
            },
        };
        let batch: Vec<Visit> = leased.iter().enumerate().map(|(n, r)| visit(n, r)).collect();
        let started = Instant::now();
        if catalog.visits().record(&batch)? < batch.len() {
            return Err("a visit was not written down".into());
        }
        recording_s += started.elapsed().as_secs_f64();
        done += batch.len();
        now += 1;
    }
    println!(
        "{}",
        serde_json::json!({ "rows": rows, "filled_per_second": rows as f64 / filled_s, "visits": done,
            "leases_per_second": done as f64 / leasing_s,
                            "completions_per_second": done as f64 / recording_s,
                            "visits_per_second": done as f64 / (leasing_s + recording_s) })
    );
    Ok(())
}
