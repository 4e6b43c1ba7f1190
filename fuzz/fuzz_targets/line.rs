//! Lines for tables: any bytes, in each format and type. What comes out has a cell for each column.
#![no_main]
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use regex_lite::Regex;
use weir_collect::{EventCell, EventColumn, LineFilter, LineFormat, LineParser};

static PARSERS: LazyLock<Vec<LineParser>> = LazyLock::new(|| {
    let columns = ["a text", "b integer", "c real", "d boolean", "e timestamp", "f json"];
    let columns: Vec<EventColumn> = columns.iter().map(|text| EventColumn::parse(text).unwrap()).collect();
    let pattern = r"^(?<a>\S*) (?<b>\S*) (?<c>\S*) (?<d>\S*) (?<e>\S*) (?<f>.*)$";
    [
        LineFormat::Json,
        LineFormat::Pattern(Regex::new(pattern).unwrap()),
        LineFormat::Separated("\t".to_owned()),
        LineFormat::Separated(" ".to_owned()),
    ]
    .map(|format| LineParser::new(format, columns.clone()).unwrap())
    .into()
});

fuzz_target!(|data: &[u8]| {
    for parser in PARSERS.iter() {
        if let Ok(cells) = parser.parse(data) {
            assert_eq!(cells.len(), parser.columns().len());
            assert!(cells.iter().all(|cell| !matches!(cell, EventCell::Text(text) if text.contains('\0'))));
        }
    }
    let text = String::from_utf8_lossy(data);
    let _ = EventColumn::parse(&text);
    if let Ok(filter) = LineFilter::new(Some(&text)) {
        filter.takes(data);
    }
});
