//! Makes the events of visits for the log of the pool.

use weir_catalog::{
    ArchiveUpdate, EventKind, EventSubject, LfsFacts, LostFacts, PoolEvent, RefUpdate, Repository,
    VisitFacts, VisitFailure,
};
use weir_ground::Timestamp;
use weir_repo::{ChangedRef, RefsChange};
use weir_transport::Url;

use crate::failure::Failure;
use crate::queue::Done;
use crate::visited::{LostCommits, Visited};

impl LostCommits {
    /// Returns them as the log holds them.
    pub fn facts(&self) -> LostFacts {
        let LostCommits { commits, refs } = self;
        LostFacts {
            first: commits.first,
            last: commits.last,
            certain: commits.is_certain,
            kept: commits.kept.clone(),
            refs: refs.clone(),
            text: commits.to_string(),
        }
    }
}

/// Returns the event of a visit that has ended.
pub(crate) fn visit_event(done: &Done, time: Timestamp) -> PoolEvent {
    let Done { repository, result, took, .. } = done;
    let kind = match result {
        Ok(visited) => well(repository, visited, took.as_secs_f64()),
        Err(failure) => failed(repository, failure, took.as_secs_f64()),
    };
    PoolEvent { time, subject: Some(subject_of(repository)), kind }
}

/// Returns the subject of an event about `repository`.
pub fn subject_of(repository: &Repository) -> EventSubject {
    // Neither a program nor the log needs the password of an upstream.
    let url = Url::parse(&repository.url).map_or_else(|_| String::new(), |url| url.without_userinfo());
    EventSubject { id: repository.id, name: repository.name.clone(), url }
}

fn well(repository: &Repository, visited: &Visited, seconds: f64) -> EventKind {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let visit = VisitFacts {
        seconds,
        recovered_from: repository.error_class,
        damaged: visited.damaged.clone(),
        lost: visited.lost.as_ref().map(LostCommits::facts),
        lfs: visited.lfs.map(|lfs| LfsFacts {
            added: lfs.added,
            bytes: lfs.bytes,
            absent: lfs.absent,
            incomplete: lfs.is_incomplete,
        }),
        refused: visited.refused.iter().map(|name| text(name)).collect(),
    };
    let Some(seq) = visited.new_seq(repository) else { return EventKind::Unchanged(visit) };
    let named = |changed: &ChangedRef| RefUpdate {
        name: text(&changed.name),
        old: changed.old.map(|oid| oid.to_string()),
        new: changed.new.map(|oid| oid.to_string()),
    };
    let (change, objects_added, bytes_appended) = match &visited.change {
        Some((change, report)) => (*change, report.objects_added.into(), report.bytes_appended),
        None => (RefsChange::default(), 0, 0),
    };
    EventKind::Update(ArchiveUpdate {
        seq,
        is_new: repository.seq.is_none(),
        refs_added: change.added,
        refs_updated: change.updated,
        refs_deleted: change.deleted,
        refs: visited.refs.iter().map(named).collect(),
        objects_added,
        bytes_appended,
        visit,
    })
}

fn failed(repository: &Repository, failure: &Failure, seconds: f64) -> EventKind {
    let host = Url::parse(&repository.url).map_or_else(|_| String::new(), |url| url.host_port());
    EventKind::Failed(VisitFailure {
        class: failure.class,
        error: failure.error.clone(),
        host: Some(host).filter(|host| !host.is_empty() && !failure.class.is_local()),
        failed_before: repository.error_class,
        exceeded: failure.time_limit.map(|limit| limit.option().to_owned()),
        seconds,
    })
}
