//! A dataset: a folder with a folder of files for each table.
//!
//! ```text
//! _weir/dataset.json        the format and the settings
//! _weir/lock                locked by the process that writes
//! _weir/run-00000001.json   files of rows that belong to the dataset, and what of which repository they hold
//! revision/part-00000007.parquet
//! ```
//!
//! Rows get into hidden files first. A run counts once its file below `_weir` has its name; then the hidden
//! files get theirs. What a killed process leaves behind is completed or deleted by the next one.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use weir_mine::MinedState;

use crate::error::{Error, Result};
use crate::lock::OutputLock;
use crate::part::{FileFormat, PartFile};
use crate::schema::TableKind;
use crate::sink::BatchWriter;
use crate::state::OriginState;

/// The folder of what is not rows.
const OWN_FOLDER: &str = "_weir";
/// The version of the layout and of the tables.
const VERSION: u32 = 1;

/// The content of `dataset.json`.
#[derive(Serialize, Deserialize)]
struct DatasetFile {
    version: u32,
    format: String,
    settings: String,
}

/// The content of the file of a run.
#[derive(Default, Serialize, Deserialize)]
struct RunFile {
    /// The files of rows, without their end: `TABLE/part-NUMBER`.
    parts: Vec<String>,
    origins: Vec<OriginRun>,
}

#[derive(Serialize, Deserialize)]
struct OriginRun {
    origin: String,
    #[serde(flatten)]
    state: OriginState,
}

/// A dataset that this process writes to.
pub struct Dataset {
    root: PathBuf,
    format: FileFormat,
    next_run: u64,
    next_part: Arc<AtomicU64>,
    states: HashMap<String, MinedState>,
    /// Locked for as long as it is open.
    _lock: OutputLock,
}

impl Dataset {
    /// Opens the dataset in the folder `root`, or makes one. `settings` are what decides which rows there
    /// are.
    ///
    /// # Errors
    /// If the folder is something else, is in use, was filled with other settings, is damaged, or cannot be
    /// read or written.
    pub fn open(root: &Path, format: FileFormat, settings: &str) -> Result<Dataset> {
        let own = root.join(OWN_FOLDER);
        if !own.is_dir() && fs::read_dir(root).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Error::NotADataset(root.to_owned()));
        }
        fs::create_dir_all(&own).map_err(Error::on(&own))?;
        let lock_path = own.join("lock");
        let lock = OutputLock::take(&lock_path, root)?;
        check_settings(root, &own, format, settings)?;
        let mut dataset = Dataset {
            root: root.to_owned(),
            format,
            next_run: 1,
            next_part: Arc::new(AtomicU64::new(1)),
            states: HashMap::new(),
            _lock: lock,
        };
        for table in TableKind::ALL {
            let folder = root.join(table.name());
            fs::create_dir_all(&folder).map_err(Error::on(&folder))?;
        }
        dataset.read_runs(&own)?;
        Ok(dataset)
    }

    /// Reads what runs have added, and completes or deletes what the last process left behind.
    fn read_runs(&mut self, own: &Path) -> Result<()> {
        let fail = Error::on(own);
        let mut names = Vec::new();
        for entry in fs::read_dir(own).map_err(&fail)? {
            let name = entry.map_err(&fail)?.file_name().to_string_lossy().into_owned();
            let number = name.strip_prefix("run-").and_then(|n| n.strip_suffix(".json"));
            names.extend(number.and_then(|n| n.parse::<u64>().ok()).map(|number| (number, name.clone())));
        }
        names.sort_unstable();
        let mut parts = std::collections::HashSet::new();
        for (number, name) in names {
            let path = own.join(name);
            let damaged = |what: String| Error::Damaged { path: path.clone(), what };
            let data = fs::read(&path).map_err(Error::on(&path))?;
            let run: RunFile = serde_json::from_slice(&data).map_err(|e| damaged(e.to_string()))?;
            for origin in run.origins {
                let state = origin.state.into_state().map_err(|what| damaged(what.to_owned()))?;
                self.states.insert(origin.origin, state);
            }
            parts.extend(run.parts);
            self.next_run = number + 1;
        }
        for table in TableKind::ALL {
            self.tidy(table.name(), &mut parts)?;
        }
        match parts.into_iter().next() {
            None => Ok(()),
            Some(missing) => {
                let path = self.root.join(format!("{missing}.{}", self.format.name()));
                Err(Error::Damaged { path, what: "the file is missing".to_owned() })
            }
        }
    }

    /// Gives hidden files of `table` that belong to the dataset their names, and deletes the others. Takes
    /// those that are there out of `parts`.
    fn tidy(&mut self, table: &str, parts: &mut std::collections::HashSet<String>) -> Result<()> {
        let folder = self.root.join(table);
        let fail = Error::on(&folder);
        for entry in fs::read_dir(&folder).map_err(&fail)? {
            let path = entry.map_err(&fail)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let shown = name.strip_prefix('.').and_then(|n| n.strip_suffix(".tmp")).unwrap_or(&name);
            let end = format!(".{}", self.format.name());
            let Some(stem) = shown.strip_suffix(&end).filter(|stem| stem.starts_with("part-")) else {
                continue;
            };
            if let Some(number) = stem.strip_prefix("part-").and_then(|n| n.parse::<u64>().ok()) {
                self.next_part.fetch_max(number + 1, Ordering::Relaxed);
            }
            match (parts.remove(&format!("{table}/{stem}")), shown == name) {
                (true, true) => {}
                (true, false) => fs::rename(&path, folder.join(shown)).map_err(Error::on(&path))?,
                (false, false) => fs::remove_file(&path).map_err(Error::on(&path))?,
                // A file that no run names and that is not hidden is somebody else's.
                (false, true) => {}
            }
        }
        Ok(())
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Returns what of the repository `origin` was mined.
    pub fn state(&self, origin: &str) -> &MinedState {
        self.states.get(origin).unwrap_or(&MinedState::Nothing)
    }

    /// Returns a writer of new files.
    pub fn writer(&self) -> PartWriter {
        PartWriter {
            root: self.root.clone(),
            format: self.format,
            next_part: Arc::clone(&self.next_part),
            parts: Vec::new(),
        }
    }

    /// Adds all rows of `writers` to the dataset, in one step and durably, with what they hold of
    /// repositories.
    ///
    /// # Errors
    /// If the rows cannot be written. The dataset is then as it was before.
    pub fn commit<'s>(
        &mut self,
        writers: impl Iterator<Item = &'s mut PartWriter>,
        origins: Vec<(String, MinedState)>,
    ) -> Result<()> {
        let mut run = RunFile::default();
        let mut hidden = Vec::new();
        for writer in writers {
            for part in std::mem::take(&mut writer.parts) {
                let (path, shown) = (part.hidden_path(self.format), part.path(self.format));
                let path = self.root.join(path);
                part.file.finish().map_err(Error::on(&path))?;
                run.parts.push(format!("{}/{}", part.table.name(), part.stem));
                hidden.push((path, self.root.join(shown)));
            }
        }
        if run.parts.is_empty() && origins.is_empty() {
            return Ok(());
        }
        for (origin, state) in &origins {
            let state = OriginState::of(state);
            run.origins.extend(state.map(|state| OriginRun { origin: origin.clone(), state }));
        }
        for table in TableKind::ALL {
            sync_folder(&self.root.join(table.name()))?;
        }
        let own = self.root.join(OWN_FOLDER);
        let data = serde_json::to_vec(&run).expect("maps with texts as keys");
        write_durably(&own, &format!("run-{:08}.json", self.next_run), &data)?;
        self.next_run += 1;
        for (from, to) in hidden {
            fs::rename(&from, &to).map_err(Error::on(&to))?;
        }
        self.states.extend(origins);
        Ok(())
    }
}

fn check_settings(root: &Path, own: &Path, format: FileFormat, settings: &str) -> Result<()> {
    let path = own.join("dataset.json");
    match fs::read(&path) {
        Ok(data) => {
            let damaged = |what: String| Error::Damaged { path: path.clone(), what };
            let file: DatasetFile = serde_json::from_slice(&data).map_err(|e| damaged(e.to_string()))?;
            if file.version != VERSION {
                return Err(damaged(format!("version {} is not known; use a newer weir", file.version)));
            }
            if file.format != format.name() || file.settings != settings {
                let found = format!("--to {} {}", file.format, file.settings);
                return Err(Error::OtherSettings { path: root.to_owned(), found });
            }
            Ok(())
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let (format, settings) = (format.name().to_owned(), settings.to_owned());
            let data = serde_json::to_vec(&DatasetFile { version: VERSION, format, settings });
            write_durably(own, "dataset.json", &data.expect("a map with texts as keys"))
        }
        Err(e) => Err(Error::on(&path)(e)),
    }
}

/// Writes a file that is there whole or not at all.
fn write_durably(folder: &Path, name: &str, data: &[u8]) -> Result<()> {
    let (path, hidden) = (folder.join(name), folder.join(format!(".{name}.tmp")));
    let fail = Error::on(&path);
    let mut file = File::create(&hidden).map_err(&fail)?;
    file.write_all(data).and_then(|()| file.sync_all()).map_err(&fail)?;
    fs::rename(&hidden, &path).map_err(&fail)?;
    sync_folder(folder)
}

fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::on(folder))
}

/// A hidden file.
struct HiddenPart {
    table: TableKind,
    stem: String,
    file: PartFile,
}

impl HiddenPart {
    fn path(&self, format: FileFormat) -> PathBuf {
        Path::new(self.table.name()).join(format!("{}.{}", self.stem, format.name()))
    }

    fn hidden_path(&self, format: FileFormat) -> PathBuf {
        Path::new(self.table.name()).join(format!(".{}.{}.tmp", self.stem, format.name()))
    }
}

/// Writes rows into hidden files, one a table.
pub struct PartWriter {
    root: PathBuf,
    format: FileFormat,
    next_part: Arc<AtomicU64>,
    parts: Vec<HiddenPart>,
}

impl BatchWriter for PartWriter {
    fn write(&mut self, table: TableKind, batch: &RecordBatch) -> io::Result<()> {
        let at = match self.parts.iter().position(|part| part.table == table) {
            Some(at) => at,
            None => {
                let stem = format!("part-{:08}", self.next_part.fetch_add(1, Ordering::Relaxed));
                let path = self.root.join(table.name()).join(format!(".{stem}.{}.tmp", self.format.name()));
                let file = PartFile::create(&path, table, self.format)?;
                self.parts.push(HiddenPart { table, stem, file });
                self.parts.len() - 1
            }
        };
        self.parts[at].file.write(batch)
    }
}

impl Drop for PartWriter {
    /// Deletes files that were not added to the dataset.
    fn drop(&mut self) {
        for part in &self.parts {
            let _ = fs::remove_file(self.root.join(part.hidden_path(self.format)));
        }
    }
}
