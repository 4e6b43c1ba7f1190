//! Looks for issues, pull requests and releases.

use weir_catalog::{Catalog, MetadataCounts, MetadataLook, MetadataTask, Outcome, Repository, Visit, Which};
use weir_ground::{Epoch, Timestamp};

use super::{pass, row};

#[expect(clippy::too_many_lines, reason = "one story, told in order")]
pub fn looks_for_metadata_are_leased_in_turn(c: &mut Catalog) {
    pass(
        c,
        &[row("1", "a"), row("2", "b"), row("2:wiki", "b.wiki"), row("3", "c"), row("4", "d")],
        Timestamp(5),
    );
    let names = |tasks: &[MetadataTask]| {
        tasks.iter().map(|t| t.repository.name.trim_start_matches("h/").to_owned()).collect::<Vec<_>>()
    };
    let visit = |r: &Repository| Visit {
        id: r.id,
        epoch: r.epoch,
        began_at: Timestamp(10),
        at: Timestamp(11),
        next_due: Timestamp(0),
        fingerprint: None,
        changes: 0.0,
        watched_s: 0.0,
        is_news: false,
        snapshot: None,
        lfs_missing: None,
        outcome: Outcome::Updated { seq: 1, archive_bytes: 1, ref_count: 1 },
    };
    let note = |c: &mut Catalog, forge: &str, by_default| {
        let mut after = Some(0);
        while let Some(place) = after {
            after = c.note_metadata(forge, by_default, place, Timestamp(1000)).unwrap();
        }
    };
    let all = |c: &mut Catalog, now, until| -> Vec<MetadataTask> {
        std::iter::from_fn(|| c.lease_metadata("o", "f", None, now, (now, until)).unwrap()).collect()
    };
    note(c, "f", true);
    assert!(all(c, Timestamp(10), Timestamp(100)).is_empty(), "nothing is mirrored yet");
    let leased = c.lease("o", Timestamp(10), Timestamp(1000), &Which::default(), 9).unwrap();
    let visits: Vec<Visit> = leased.iter().filter(|r| r.name != "h/d").map(visit).collect();
    c.record(&visits).unwrap();
    let by_name: std::collections::HashMap<String, i64> =
        leased.iter().map(|r| (r.name.trim_start_matches("h/").to_owned(), r.id)).collect();
    for (name, wanted) in [("a", false), ("c", true)] {
        c.change_settings(&[by_name[name]], Timestamp(i64::MAX), &|_, settings| {
            settings.metadata = Some(wanted)
        })
        .unwrap();
    }
    note(c, "g", true);
    note(c, "f", true);
    assert!(
        c.lease_metadata("o", "g", None, Timestamp(20), (Timestamp(20), Timestamp(100))).unwrap().is_none(),
        "another forge"
    );
    let first =
        c.lease_metadata("o", "f", None, Timestamp(20), (Timestamp(20), Timestamp(100))).unwrap().unwrap();
    assert_eq!((first.forge_id.as_str(), first.changed_at, first.failures), ("2", None, 0));
    let second = all(c, Timestamp(20), Timestamp(100));
    assert_eq!(names(&second), ["c"], "what is leased is left alone, and wikis have none");
    let end = |c: &mut Catalog, (name, epoch): (&str, Epoch), due_at, is_changed, error: Option<&str>| {
        let error = error.map(str::to_owned);
        c.end_metadata_look(&MetadataLook {
            id: by_name[name],
            epoch,
            at: Timestamp(30),
            due_at,
            is_changed,
            error,
        })
        .unwrap()
    };
    assert!(end(c, ("b", first.epoch), Timestamp(50), true, None));
    assert!(end(c, ("c", second[0].epoch), Timestamp(40), false, Some("oops")));
    assert_eq!(c.metadata_counts().unwrap(), MetadataCounts { looked_at: 2, failing: 1 });
    assert_eq!(c.metadata_errors(5).unwrap(), [("h/c".to_owned(), "oops".to_owned())]);
    // What has been due for longest comes first, and a lease that has run out is anybody's.
    let due = all(c, Timestamp(60), Timestamp(100));
    assert_eq!(
        (names(&due), due[0].failures, due[1].changed_at),
        (vec!["c".to_owned(), "b".to_owned()], 1, Some(Timestamp(30)))
    );
    assert!(c.extend_metadata_lease(by_name["c"], due[0].epoch, Timestamp(300)).unwrap());
    let later = all(c, Timestamp(101), Timestamp(200));
    assert_eq!(names(&later), ["b"]);
    // The lease before that holds no more.
    assert!(
        !c.extend_metadata_lease(by_name["b"], due[1].epoch, Timestamp(400)).unwrap()
            && !end(c, ("b", due[1].epoch), Timestamp(7), true, Some("late"))
    );
    assert!(
        end(c, ("b", later[0].epoch), Timestamp(101), false, None)
            && end(c, ("c", due[0].epoch), Timestamp(1000), false, None)
    );
    // A killed process gives its leases back when the next one begins, and cannot write down what it found.
    let killed = all(c, Timestamp(102), Timestamp(200));
    assert_eq!(names(&killed), ["b"]);
    c.release_all("p").unwrap();
    assert!(all(c, Timestamp(102), Timestamp(200)).is_empty(), "of another machine");
    c.release_all("o").unwrap();
    assert!(!c.extend_metadata_lease(by_name["b"], killed[0].epoch, Timestamp(400)).unwrap());
    let next = all(c, Timestamp(102), Timestamp(200));
    assert_eq!(names(&next), ["b"]);
    assert!(!end(c, ("b", killed[0].epoch), Timestamp(7), true, None));
    assert!(end(c, ("b", next[0].epoch), Timestamp(1000), false, None));
    // Whatever was said of those that are named.
    let named = c.note_metadata_of("f", &[by_name["a"], by_name["b"], by_name["d"]]).unwrap();
    assert_eq!(named, [by_name["a"], by_name["b"]]);
    let tasks: Vec<_> = named
        .iter()
        .map(|id| {
            c.lease_metadata("o", "f", Some(*id), Timestamp(0), (Timestamp(401), Timestamp(500)))
                .unwrap()
                .unwrap()
        })
        .collect();
    assert_eq!(names(&tasks), ["a", "b"]);
    for (name, task) in ["a", "b"].iter().zip(&tasks) {
        assert!(end(c, (name, task.epoch), Timestamp(0), false, None));
    }
    // What is not wanted any more is not looked at.
    note(c, "f", false);
    assert_eq!(names(&all(c, Timestamp(1001), Timestamp(2000))), ["c"], "only what says so itself");
    c.remove("h/c").unwrap();
    assert_eq!(c.metadata_counts().unwrap().looked_at, 0);
}
