//! Power that fails at any call, with syncs that do what they say and with syncs that lie
//! (docs/archive-format.md, section 5).

mod common;

use common::{Disk, Rng, append, archive, recover, seed};
use weir_archive::{Error, TailKind, Writer, verify};

/// Returns the number of rounds of a test: `WEIR_ROUNDS`, or `default`.
fn rounds(default: u64) -> u64 {
    std::env::var("WEIR_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[test]
fn honest_syncs_lose_nothing_wherever_the_power_fails() {
    let seed = seed();
    for round in 0..rounds(600) {
        let mut rng = Rng::of(seed, round);
        let groups = 1 + rng.below(3);
        let (disk, mut states) = archive(&mut rng, groups);
        let before = disk.copy();
        before.power_left.set(Some(rng.below(14)));
        if rng.below(4) == 0 {
            before.sync_fails.set(Some(1 + rng.below(3)));
        }
        before.cut_fails.set(rng.below(8) == 0);
        let acknowledged = Writer::open(&before).and_then(|mut w| append(&mut w, &mut rng, 50));
        states.extend(acknowledged);
        let mut after = before.after_power_cut(&mut rng);
        // Recovery is interrupted, too.
        if rng.below(2) == 0 {
            after.power_left.set(Some(rng.below(8)));
            let again =
                Writer::open_keeping(&after, |_| Ok(())).and_then(|mut w| append(&mut w, &mut rng, 60));
            states.extend(again);
            after = after.after_power_cut(&mut rng);
        }
        let (state, tail) =
            recover(&after, &mut rng).unwrap_or_else(|e| panic!("WEIR_SEED={seed}, round {round}: {e}"));
        let last = states.last().unwrap();
        assert!(
            state.record.seq >= last.record.seq,
            "WEIR_SEED={seed}, round {round}: an acknowledged commit is lost"
        );
        let kind = tail.map(|tail| tail.kind);
        assert_ne!(
            kind,
            Some(TailKind::Committed),
            "WEIR_SEED={seed}, round {round}: what was never acknowledged is called lost"
        );
    }
}

#[test]
fn syncs_that_lie_cost_states_but_not_without_a_word() {
    let seed = seed();
    for round in 0..rounds(200) {
        let mut rng = Rng::of(seed, round);
        let groups = rng.below(5);
        let (disk, mut states) = archive(&mut rng, groups);
        let before = disk.copy();
        before.lose_syncs.set(true);
        let mut writer =
            if states.is_empty() { Writer::create(&before, 1) } else { Writer::open(&before) }.unwrap();
        states.push(append(&mut writer, &mut rng, 50).unwrap());
        let after = before.after_power_cut(&mut rng);
        let of = |n: usize| states.len().checked_sub(n).map(|n| &states[n]);
        // A state that was durable is never lost. Opening, or a check of the whole archive, finds what was
        // lost.
        let damage = verify(&after);
        match recover_to(&after) {
            Ok((state, kind)) if of(1) == Some(&state) => {
                assert_eq!(kind, None, "WEIR_SEED={seed}, round {round}")
            }
            Ok((state, kind)) => {
                assert_eq!(of(2), Some(&state), "WEIR_SEED={seed}, round {round}: a state never committed");
                assert!(
                    kind.is_none() || !damage.unwrap().is_empty(),
                    "WEIR_SEED={seed}, round {round}: lost without a word"
                );
            }
            Err(Error::NoCommit) => assert_eq!(states.len(), 1, "WEIR_SEED={seed}, round {round}: all lost"),
            Err(e) => panic!("WEIR_SEED={seed}, round {round}: {e}"),
        }
    }
}

fn recover_to(disk: &Disk) -> Result<(weir_archive::State, Option<TailKind>), Error> {
    let mut kind = None;
    let writer = Writer::open_keeping(disk, |tail| {
        kind = Some(tail.kind);
        Ok(())
    })?;
    Ok((writer.state().unwrap().clone(), kind))
}

#[test]
fn a_sync_that_fails_commits_nothing() {
    let seed = seed();
    for round in 0..60 {
        let mut rng = Rng::of(seed, round);
        let (disk, states) = archive(&mut rng, 2);
        let mut writer = Writer::open(&disk).unwrap();
        disk.sync_fails.set(Some(disk.syncs.get() + 1 + rng.below(2)));
        if let Err(e) = append(&mut writer, &mut rng, 7) {
            assert!(matches!(e, Error::Io(_)), "{e}");
            assert_eq!(writer.state(), states.last(), "WEIR_SEED={seed}, round {round}");
            assert_eq!(disk.seen.borrow().len() as u64, states[1].end());
        }
        disk.sync_fails.set(None);
        // The same writer can go on.
        append(&mut writer, &mut rng, 8).unwrap();
        assert_eq!(verify(&&disk).unwrap(), [], "WEIR_SEED={seed}, round {round}");
    }
}

#[test]
fn a_group_given_up_whose_tail_cannot_be_cut_is_never_met() {
    let mut rng = Rng::of(seed(), 0);
    let (disk, states) = archive(&mut rng, 2);
    let mut writer = Writer::open(&disk).unwrap();
    disk.cut_fails.set(true);
    let mut group = writer.begin();
    group.append("objects/pack/given-up.pack", &vec![7; 200_000]).unwrap();
    drop(group);
    assert!(disk.seen.borrow().len() as u64 > states[1].end());
    // The writer does not write over a tail that it could not cut.
    assert!(append(&mut writer, &mut rng, 8).is_err());
    disk.cut_fails.set(false);
    append(&mut writer, &mut rng, 8).unwrap();
    assert_eq!(verify(&&disk).unwrap(), []);
}
