//! Rounds through several forges, questions about single repositories, and previews.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::json;
use weir_catalog::{Catalog, EventEffect, ReceivedBatch};
use weir_crawl::{
    CrawlError, CrawlSource, ListingFilter, ListingScope, NoName, RoundError, RoundEvent, Rounds,
    WantedRepositories, preview,
};
use weir_forge::{Api, Error, Forge, GitHub};
use weir_ground::{OtherError, Stop, Timestamp};
use weir_listed::Listed;
use weir_testing::RecordedAnswer;

use crate::{CrawlStage, item, line, linked, name_of, one, options};

/// A forge of GitHub's kind that lists one owner.
#[derive(Clone)]
struct OwnerSource {
    url: String,
    name: &'static str,
    owner: &'static str,
    wanted: WantedRepositories,
    limit: u64,
    accounts: bool,
    opens: bool,
}

impl CrawlSource for OwnerSource {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn scope(&self) -> ListingScope {
        ListingScope::new("github", &self.url, &[self.owner.to_owned()], &[])
    }

    fn name_of(&self, listed: &Listed) -> Result<Option<String>, NoName> {
        name_of(listed)
    }

    fn wanted(&self) -> WantedRepositories {
        self.wanted.clone()
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn interval_s(&self) -> i64 {
        500
    }

    fn lists_accounts(&self) -> bool {
        self.accounts
    }

    fn open(&self, _: &Stop) -> Result<Box<dyn Forge>, OtherError> {
        if !self.opens {
            return Err("no credentials".into());
        }
        let owners = self.owner.split(' ').map(str::to_owned).collect();
        Ok(Box::new(GitHub::new(&self.url, owners, Vec::new(), Api::new(options()))))
    }
}

fn source(stage: &CrawlStage, name: &'static str, owner: &'static str) -> OwnerSource {
    OwnerSource {
        url: stage.server.url(),
        name,
        owner,
        wanted: WantedRepositories::default(),
        limit: 0,
        accounts: false,
        opens: true,
    }
}

/// Returns a word for an event.
fn word(event: &RoundEvent<'_>) -> String {
    match event {
        RoundEvent::Began => "began".to_owned(),
        RoundEvent::Page(progress) => format!("page {}", progress.pages),
        RoundEvent::Accounts(progress) => format!("accounts {}", progress.listed),
        RoundEvent::AccountsListed(progress) => format!("accounts listed {}", progress.finished),
        RoundEvent::Ended => "ended".to_owned(),
        RoundEvent::Listed(progress) => format!("listed {} {}", progress.listed, progress.finished),
        RoundEvent::Asked(progress) => format!("asked {} gone {}", progress.asked, progress.gone),
        RoundEvent::Failed(error) => format!("failed {}", matches!(error, RoundError::ListedByAnother)),
    }
}

/// Runs a round, in which `heed` gets each word and may stop. Returns whether it failed, and the words.
fn round_as(
    stage: &CrawlStage,
    sources: &[OwnerSource],
    (watch, now): (bool, &(dyn Fn() -> Timestamp + Sync)),
    heed: &(dyn Fn(&str, &Stop) -> Result<(), OtherError> + Sync),
) -> (bool, Vec<String>) {
    let stop = Stop::default();
    let rounds = Rounds { sources, watch, gone_s: 50, now, stop: &stop };
    let path = stage.folder.path().join("catalog.db");
    let words = Mutex::new(Vec::new());
    let failed = rounds.run(&|| Catalog::open(&path), &mut |name, event| {
        let word = format!("{name} {}", word(&event));
        words.lock().unwrap().push(word.clone());
        heed(&word, &stop)
    });
    (failed, words.into_inner().unwrap())
}

fn round(stage: &CrawlStage, sources: &[OwnerSource]) -> (bool, Vec<String>) {
    round_as(stage, sources, (false, &|| Timestamp(1000)), &|_, _| Ok(()))
}

/// Makes events ask about a repository.
fn ask(stage: &CrawlStage, id: u64) {
    let id = stage.catalog.get(&format!("f/o/r{id}")).unwrap().unwrap().id;
    let mut batch = ReceivedBatch { at: Timestamp(5), ..ReceivedBatch::default() };
    batch.push(b"{}", 0);
    let effect = EventEffect { asked: vec![id], ..EventEffect::default() };
    stage.catalog.received().take(None, &batch, &effect).unwrap().unwrap();
}

#[test]
fn round_lists_forges_with_their_accounts() {
    let stage = CrawlStage::new();
    stage.pages(&[&[item(1)], &[item(2)]]);
    let user = json!({ "id": 7, "login": "o", "type": "User" });
    stage.answer("GET /api/v3/users/o", RecordedAnswer::json(user));
    let with_accounts = OwnerSource { accounts: true, ..source(&stage, "f", "o") };
    let (failed, words) = round(&stage, std::slice::from_ref(&with_accounts));
    let expected =
        ["f began", "f page 1", "f page 2", "f accounts listed true", "f ended", "f listed 2 true"];
    assert_eq!((failed, words), (false, expected.map(str::to_owned).to_vec()));
    assert_eq!(stage.catalog.accounts().counts("f").unwrap().users, 1);
    // One that fails does not keep the others from being listed, whichever comes first.
    let gone = source(&stage, "g", "down");
    stage.answer(&line("down", 1), RecordedAnswer::new(401, "no"));
    for sources in [[gone.clone(), source(&stage, "f", "o")], [source(&stage, "f", "o"), gone]] {
        let (failed, words) = round(&stage, &sources);
        assert!(failed && words.contains(&"f listed 2 true".to_owned()), "{words:?}");
        assert!(words.contains(&"g failed false".to_owned()), "{words:?}");
        let listing = stage.catalog.listings().get("g").unwrap().unwrap();
        assert_eq!((listing.failed_at, listing.error.is_some()), (Some(Timestamp(1000)), true));
    }
    let closed = OwnerSource { opens: false, ..source(&stage, "f", "o") };
    assert_eq!(round(&stage, &[closed]), (true, vec!["f failed false".to_owned()]));
    assert_eq!(round(&stage, &[]), (false, Vec::new()));
}

#[test]
fn round_fails_where_nothing_can_be_taken_or_another_lists() {
    let stage = CrawlStage::new();
    let mut refused = item(1);
    refused["full_name"] = json!("o/refused");
    stage.pages(&[&[refused.clone()]]);
    let all = [source(&stage, "f", "o")];
    let (failed, words) = round(&stage, &all);
    assert_eq!((failed, words.last().unwrap().as_str()), (true, "f failed false"));
    stage.pages(&[&[refused, item(2)]]);
    assert!(!round(&stage, &all).0);
    // It is no failure that nothing is wanted.
    let mut nameless = item(3);
    nameless["full_name"] = json!("o/nameless");
    stage.pages(&[&[nameless]]);
    assert!(!round(&stage, &all).0);
    stage.pages(&[&[item(2)]]);
    let other = Catalog::open(&stage.folder.path().join("catalog.db")).unwrap();
    assert!(other.listings().try_lock("f").unwrap());
    assert_eq!(round(&stage, &all), (true, vec!["f failed true".to_owned()]));
    other.listings().unlock("f").unwrap();
    assert!(!round(&stage, &all).0);
    assert!(other.listings().try_lock("f").unwrap(), "it was unlocked");
    other.listings().unlock("f").unwrap();
    // If the caller cannot be told, the listing ends.
    let none = |word: &str, _: &Stop| match word.contains("page") {
        true => Err("broken pipe".into()),
        false => Ok(()),
    };
    stage.pages(&[&[item(1)], &[item(2)]]);
    let (failed, words) = round_as(&stage, &all, (false, &|| Timestamp(1000)), &none);
    assert_eq!((failed, words.iter().filter(|word| word.contains("page")).count()), (true, 1), "{words:?}");
}

#[test]
fn round_that_is_stopped_goes_on_the_next_time() {
    let stage = CrawlStage::new();
    stage.pages(&[&[item(1)], &[item(2)]]);
    let sources = [OwnerSource { accounts: true, ..source(&stage, "f", "o") }];
    let stops = |word: &str, stop: &Stop| {
        if word.contains("page 1") {
            stop.stop();
        }
        Ok(())
    };
    let (failed, words) = round_as(&stage, &sources, (false, &|| Timestamp(1000)), &stops);
    let expected = ["f began", "f page 1", "f ended", "f listed 1 false"];
    assert_eq!((failed, words), (false, expected.map(str::to_owned).to_vec()));
    let user = json!({ "id": 7, "login": "o", "type": "User" });
    stage.answer("GET /api/v3/users/o", RecordedAnswer::json(user));
    let (failed, words) = round(&stage, &sources);
    assert!(!failed && words.contains(&"f listed 1 true".to_owned()), "{words:?}");
    // So does a listing of accounts.
    let stops = |word: &str, stop: &Stop| {
        if word.contains("accounts 1") {
            stop.stop();
        }
        Ok(())
    };
    let sources = [OwnerSource { accounts: true, ..source(&stage, "g", "o p") }];
    let (failed, words) = round_as(&stage, &sources, (false, &|| Timestamp(1000)), &stops);
    let expected = [
        "g began",
        "g page 1",
        "g page 2",
        "g page 3",
        "g accounts 1",
        "g accounts listed false",
        "g ended",
        "g listed 2 false",
    ];
    assert_eq!((failed, words), (false, expected.map(str::to_owned).to_vec()));
    let position = stage.catalog.listings().get("g/accounts").unwrap().unwrap().position;
    assert_eq!(position.as_deref(), Some("owner:1"));
}

#[test]
fn round_that_watches_lists_at_intervals() {
    let stage = CrawlStage::new();
    stage.pages(&[&[item(1)]]);
    let all = [source(&stage, "f", "o")];
    let clock = AtomicI64::new(1000);
    let now = || Timestamp(clock.load(Ordering::Relaxed));
    assert!(!round_as(&stage, &all, (false, &now), &|_, _| Ok(())).0);
    // The listing ended a moment ago. It is listed again after the interval.
    stage.server.asked();
    let looks = AtomicI64::new(0);
    let waiting = || {
        // Each look at the clock that finds nothing due is followed by a sleep.
        if looks.fetch_add(1, Ordering::Relaxed) == 5 {
            clock.store(1500, Ordering::Relaxed);
        }
        now()
    };
    let stops = |word: &str, stop: &Stop| {
        if word.contains("listed") {
            stop.stop();
        }
        Ok(())
    };
    let (failed, words) = round_as(&stage, &all, (true, &waiting), &stops);
    let expected = ["f began", "f page 1", "f ended", "f listed 1 true"];
    assert_eq!((failed, words), (false, expected.map(str::to_owned).to_vec()));
    assert!(looks.load(Ordering::Relaxed) > 5, "it was not due before");
    // One that fails is tried again later.
    clock.store(3000, Ordering::Relaxed);
    looks.store(0, Ordering::Relaxed);
    stage.answer(&line("o", 1), RecordedAnswer::new(401, "no"));
    let later = || {
        if looks.fetch_add(1, Ordering::Relaxed) == 12 {
            clock.store(3300, Ordering::Relaxed);
        }
        now()
    };
    let fails = AtomicI64::new(0);
    let stops = |word: &str, stop: &Stop| {
        if word.contains("failed") {
            let at = now();
            match fails.fetch_add(1, Ordering::Relaxed) {
                0 => assert_eq!(at, Timestamp(3000)),
                _ => {
                    assert_eq!(at, Timestamp(3300));
                    stop.stop();
                }
            }
        }
        Ok(())
    };
    assert!(round_as(&stage, &all, (true, &later), &stops).0);
    assert_eq!(fails.load(Ordering::Relaxed), 2);
}

#[test]
fn round_that_watches_takes_up_accounts_that_are_not_finished() {
    let stage = CrawlStage::new();
    stage.pages(&[&[item(1)]]);
    let sources = [OwnerSource { accounts: true, ..source(&stage, "f", "o") }];
    stage.answer("GET /api/v3/users/o", RecordedAnswer::new(401, "no"));
    assert!(round(&stage, &sources).0);
    let user = json!({ "id": 7, "login": "o", "type": "User" });
    stage.answer("GET /api/v3/users/o", RecordedAnswer::json(user));
    stage.server.asked();
    let stops = |word: &str, stop: &Stop| {
        if word.contains("accounts listed") {
            stop.stop();
        }
        Ok(())
    };
    let (failed, words) = round_as(&stage, &sources, (true, &|| Timestamp(1000)), &stops);
    let expected = ["f began", "f accounts listed true", "f ended"];
    assert_eq!((failed, words), (false, expected.map(str::to_owned).to_vec()));
    assert_eq!(stage.server.lines(), ["GET /api/v3/users/o"]);
}

#[test]
fn round_asks_about_repositories_that_events_name() {
    let stage = CrawlStage::new();
    stage.pages(&[&[item(1), item(2), item(3)]]);
    let all = [source(&stage, "f", "o")];
    assert!(!round(&stage, &all).0);
    (1..=3).for_each(|id| ask(&stage, id));
    stage.answer(&one(1), RecordedAnswer::json(item(1)));
    stage.answer(&one(3), RecordedAnswer::new(500, "no"));
    let limited = RecordedAnswer::json(item(1)).header("X-RateLimit-Remaining", "7");
    stage.answer(&one(1), limited.header("X-RateLimit-Reset", "5000"));
    let (failed, words) = round(&stage, &all);
    assert_eq!((failed, words.last().unwrap().as_str()), (false, "f asked 3 gone 1"));
    assert_eq!(stage.known(&[1, 2, 3]), [Some(false), Some(true), Some(false)]);
    assert_eq!(stage.catalog.get("f/o/r2").unwrap().unwrap().next_due, Timestamp(1050));
    assert_eq!(stage.catalog.accounts().budgets(Timestamp(1000)).unwrap()[0].1.remaining, 7);
    assert!(stage.catalog.listings().questions("f", 0, 9).unwrap().is_empty());
    assert!(!round(&stage, &all).1.iter().any(|word| word.contains("asked")));
    // A failure keeps the questions, and another process that lists answers them itself.
    ask(&stage, 1);
    stage.answer(&one(1), RecordedAnswer::new(401, "no"));
    assert!(round(&stage, &all).0);
    assert_eq!(stage.catalog.listings().questions("f", 0, 9).unwrap().len(), 1);
}

#[test]
fn preview_tells_what_would_be_added() {
    let stage = CrawlStage::new();
    let mut fork = item(2);
    fork["fork"] = json!(true);
    let mut wiki = item(4);
    wiki["has_wiki"] = json!(true);
    let mut nameless = item(5);
    nameless["full_name"] = json!("o/nameless");
    stage.pages(&[&[item(1), fork, nameless], &[item(3), wiki, item(6)]]);
    let filter = ListingFilter { skip_forks: true, ..ListingFilter::default() };
    let told = |wikis: bool, limit: u64| {
        let wanted = WantedRepositories { filter: filter.clone(), wikis, ..WantedRepositories::default() };
        let source = OwnerSource { wanted, limit, ..source(&stage, "f", "o") };
        let mut names = Vec::new();
        let result = preview(&source, &Stop::default(), &mut |name, listed| {
            names.push(format!("{name} {}", listed.forge_id));
            Ok(())
        });
        (result.is_ok(), names)
    };
    let all = ["f/o/r1 1", "f/o/r3 3", "f/o/r4 4", "f/o/r4.wiki 4:wiki", "f/o/r6 6"];
    assert_eq!(told(true, 0), (true, all.map(str::to_owned).to_vec()));
    let without = ["f/o/r1 1", "f/o/r3 3", "f/o/r4 4", "f/o/r6 6"];
    assert_eq!(told(false, 0), (true, without.map(str::to_owned).to_vec()));
    assert_eq!(told(false, 2), (true, without[..2].iter().map(|&name| name.to_owned()).collect()));
    stage.server.asked();
    assert_eq!(told(false, 1), (true, vec![without[0].to_owned()]));
    assert_eq!(stage.server.lines(), [line("o", 1)], "no more pages are needed");
    let stop = Stop::default();
    stop.stop();
    preview(&source(&stage, "f", "o"), &stop, &mut |_, _| Ok(())).unwrap();
    assert_eq!(stage.server.lines(), [line("o", 1)]);
    stage.answer(&line("o", 1), linked(&[]));
    stage.answer(&line("o", 2), RecordedAnswer::new(500, "no"));
    let failed = preview(&source(&stage, "f", "o"), &Stop::default(), &mut |_, _| Ok(())).unwrap_err();
    assert!(matches!(failed.downcast_ref(), Some(Error::Unavailable { .. })));
    assert!(stage.catalog.listings().get("f").unwrap().is_none(), "the catalog knows nothing of it");
    let of_catalog = RoundError::from(CrawlError::Forge(Error::Stopped));
    assert!(matches!(of_catalog, RoundError::Crawl(CrawlError::Forge(Error::Stopped))));
}
