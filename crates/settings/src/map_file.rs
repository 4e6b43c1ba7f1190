//! A file of mapping rules, as `[serve]` has them.

use std::path::Path;

use serde::Deserialize;
use weir_ground::FileError;
use weir_serve::MapRule;

use crate::config::MapConfig;
use crate::error::{Error, Result};

/// Reads a file that has nothing but rules, each a `[[map]]`.
///
/// # Errors
/// If it cannot be read, or a rule is wrong.
pub fn read_map_rules(path: &Path) -> Result<Vec<MapRule>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct MapFile {
        #[serde(default)]
        map: Vec<MapConfig>,
    }
    let text = std::fs::read_to_string(path).map_err(FileError::on("read", path))?;
    let fail = |why: String| Error::Wrong(format!("{}: {}", path.display(), why.trim().replace('\n', " ")));
    let file: MapFile = toml::from_str(&text).map_err(|e| fail(e.to_string()))?;
    file.map.iter().map(|m| m.rule().map_err(|e| fail(e.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_files_are_read_whole_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_map_rules(&path)
        };
        assert_eq!(read("").unwrap().len(), 0);
        assert_eq!(
            read("[[map]]\npath = '/a/*'\nto = 'b/*'\n[[map]]\npath = '/c'\nto = 'd'").unwrap().len(),
            2
        );
        for wrong in
            ["[[map]]\npath = '/a/*'", "[[rule]]", "[[map]]\npath = '/a/*/*/x*'\nto = ''\nhost = 'h'\nx = 1"]
        {
            assert!(matches!(read(wrong), Err(Error::Wrong(_))), "{wrong}");
        }
        assert!(matches!(read_map_rules(&folder.path().join("none")), Err(Error::File(_))));
    }
}
