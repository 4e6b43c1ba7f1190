//! First visits to realistic lists: some of the listed repositories are always gone.

use crate::common::Env;

#[test]
fn one_that_fails_in_a_folder_of_its_own_costs_the_others_nothing() {
    let env = Env::new();
    let upstream = env.odd_repository("up.git");
    let url = upstream.to_str().unwrap();
    for n in 0..6 {
        env.weir(&["add", "--name", &format!("host/owner{n}/good"), url]);
    }
    // These fail: nothing is ever created in their folders.
    for n in 0..2 {
        let gone = env.path(&format!("gone{n}.git"));
        env.weir(&["add", "--force", "--name", &format!("host/gone{n}/bad"), gone.to_str().unwrap()]);
    }
    let said = env.weir_fails(&["mirror"]);
    assert!(said.contains("2 failed"), "{said}");
    let rows = env.weir_json(&["ls"]);
    let rows = rows.as_array().unwrap();
    let known = rows.iter().filter(|r| r["seq"].is_u64()).count();
    assert_eq!(known, 6, "all that were cloned are known: {rows:?}");
    let failing: Vec<_> = rows.iter().filter(|r| r["error"].is_string()).collect();
    assert_eq!(failing.len(), 2, "both that failed are known to: {rows:?}");
    // Nothing is due again at once.
    let again = env.weir(&["mirror"]);
    assert!(again.contains("nothing is due") || again.contains("0 unchanged"), "{again}");
}
