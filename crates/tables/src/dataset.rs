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
//!
//! Rows that are wrong by now are removed by writing the files that hold them anew: the file of the run names
//! the old files and those that take their place.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use weir_mine::{MinedState, ReplacedRows};

use crate::error::{Error, Result};
use crate::lock::OutputLock;
use crate::output::MineOutput;
use crate::part::{FileFormat, PartFile};
use crate::removal::{OriginEdit, RowEdit, edited_rows};
use crate::schema::{TableKind, VERSION, check_version};
use crate::settings::{MineSettings, StoredSettings};
use crate::sink::BatchWriter;
use crate::state::OriginState;

/// The folder of what is not rows.
const OWN_FOLDER: &str = "_weir";
/// The file of each table that has no rows.
const EMPTY_PART: &str = "part-00000000";
/// If so many bytes can be written, rows can.
const PROBE_BYTES: usize = 1 << 20;

/// The content of `dataset.json`.
#[derive(Serialize, Deserialize)]
struct DatasetFile {
    version: i32,
    format: String,
    settings: StoredSettings,
}

/// The content of the file of a run.
#[derive(Default, Serialize, Deserialize)]
struct RunFile {
    /// The files of rows.
    parts: Vec<RunPart>,
    /// Files of earlier runs, and those that take their place, if rows are left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rewritten: Vec<(String, Option<RunPart>)>,
    /// Repositories of earlier runs, and their new names; those without are forgotten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    moved: Vec<(String, Option<String>)>,
    origins: Vec<OriginRun>,
}

/// A file of rows.
#[derive(Clone, Serialize, Deserialize)]
struct RunPart {
    /// Its name without its end: `TABLE/part-NUMBER`.
    name: String,
    /// Its length.
    bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct OriginRun {
    origin: String,
    #[serde(flatten)]
    state: OriginState,
}

/// The rows of a run.
#[derive(Default)]
struct RunRows {
    parts: Vec<RunPart>,
    origins: HashSet<String>,
}

/// A dataset that this process writes to.
pub struct Dataset {
    root: PathBuf,
    format: FileFormat,
    next_run: u64,
    next_part: Arc<AtomicU64>,
    states: HashMap<String, MinedState>,
    /// The files and the repositories of each run.
    runs: Vec<RunRows>,
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
    pub fn open(root: &Path, format: FileFormat, settings: &MineSettings) -> Result<Dataset> {
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
            runs: Vec::new(),
            _lock: lock,
        };
        for table in TableKind::ALL {
            let folder = root.join(table.name());
            fs::create_dir_all(&folder).map_err(Error::on(&folder))?;
        }
        dataset.read_runs(&own)?;
        dataset.add_empty_files()?;
        Ok(dataset)
    }

    /// Makes a file without rows for each table that has none: readers refuse a folder without files.
    fn add_empty_files(&self) -> Result<()> {
        for &table in TableKind::ALL {
            let part = HiddenPart::name_of(table, EMPTY_PART);
            let path = self.root.join(format!("{part}.{}", self.format.name()));
            let is_of_table = |part: &RunPart| part.name.split('/').next() == Some(table.name());
            if path.exists() || self.runs.iter().any(|run| run.parts.iter().any(is_of_table)) {
                continue;
            }
            let hidden = self.root.join(table.name()).join(format!(".{EMPTY_PART}.tmp"));
            PartFile::create(&hidden, table, self.format)
                .and_then(PartFile::finish)
                .and_then(|_| fs::rename(&hidden, &path))
                .map_err(Error::on(&path))?;
        }
        Ok(())
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
        let mut old = HashSet::new();
        for (number, name) in names {
            let path = own.join(name);
            let damaged = |what: String| Error::Damaged { path: path.clone(), what };
            let data = fs::read(&path).map_err(Error::on(&path))?;
            let run: RunFile = serde_json::from_slice(&data).map_err(|e| damaged(e.to_string()))?;
            self.moved(&run.moved);
            let mut rows = RunRows { parts: run.parts, origins: HashSet::new() };
            for origin in run.origins {
                let state = origin.state.into_state().map_err(|what| damaged(what.to_owned()))?;
                rows.origins.insert(origin.origin.clone());
                self.states.insert(origin.origin, state);
            }
            self.took_place(&run.rewritten);
            old.extend(run.rewritten.into_iter().map(|(old, _)| old));
            self.runs.push(rows);
            let next = number.checked_add(1);
            self.next_run = next.ok_or_else(|| damaged("no run has this number".to_owned()))?;
        }
        let parts = self.runs.iter().flat_map(|run| &run.parts);
        let mut parts: HashMap<String, u64> = parts.map(|part| (part.name.clone(), part.bytes)).collect();
        for table in TableKind::ALL {
            self.tidy(table.name(), &mut parts, &old)?;
        }
        match parts.into_keys().next() {
            None => Ok(()),
            Some(missing) => {
                let path = self.root.join(format!("{missing}.{}", self.format.name()));
                Err(Error::Damaged { path, what: "the file is missing".to_owned() })
            }
        }
    }

    /// Notes which files took the place of others.
    fn took_place(&mut self, rewritten: &[(String, Option<RunPart>)]) {
        for (old, new) in rewritten {
            for run in &mut self.runs {
                if let Some(at) = run.parts.iter().position(|part| part.name == *old) {
                    run.parts.swap_remove(at);
                    run.parts.extend(new.clone());
                }
            }
        }
    }

    /// Notes which repositories have another name, or are forgotten.
    fn moved(&mut self, moved: &[(String, Option<String>)]) {
        for (old, new) in moved {
            let state = self.states.remove(old);
            self.states.extend(new.clone().zip(state));
            for run in &mut self.runs {
                if run.origins.remove(old) {
                    run.origins.extend(new.clone());
                }
            }
        }
    }

    /// Gives hidden files of `table` that belong to the dataset their names, and deletes the others, and
    /// those in `old`. Takes those that are there out of `parts`, which holds their lengths.
    fn tidy(&mut self, table: &str, parts: &mut HashMap<String, u64>, old: &HashSet<String>) -> Result<()> {
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
            let number = stem.strip_prefix("part-").and_then(|n| n.parse::<u64>().ok());
            // A file with the last number is somebody else's: none could follow it.
            if let Some(next) = number.and_then(|number| number.checked_add(1)) {
                self.next_part.fetch_max(next, Ordering::Relaxed);
            }
            let part = format!("{table}/{stem}");
            let expected = parts.remove(&part);
            if let Some(expected) = expected {
                let found = fs::metadata(&path).map_err(Error::on(&path))?.len();
                if found != expected {
                    let what = format!("it has {found} bytes, not {expected}");
                    return Err(Error::Damaged { path, what });
                }
            }
            match (expected.is_some(), shown == name) {
                (true, true) => {}
                (true, false) => fs::rename(&path, folder.join(shown)).map_err(Error::on(&path))?,
                (false, false) => fs::remove_file(&path).map_err(Error::on(&path))?,
                (false, true) if old.contains(&part) => fs::remove_file(&path).map_err(Error::on(&path))?,
                // A file that no run names and that is not hidden is somebody else's.
                (false, true) => {}
            }
        }
        Ok(())
    }

    /// Returns a writer of new files.
    fn writer(&self) -> PartWriter {
        PartWriter {
            root: self.root.clone(),
            format: self.format,
            next_part: Arc::clone(&self.next_part),
            parts: Vec::new(),
            edits: Vec::new(),
        }
    }

    /// Completes the files of `writers`, and writes the file of the run. Adds each file to `hidden`, with the
    /// path that it will have. Returns `None` if there is nothing to write.
    fn write_run(
        &self,
        writers: &mut [&mut PartWriter],
        origins: &[(String, MinedState)],
        hidden: &mut Vec<(PathBuf, PathBuf)>,
    ) -> Result<Option<RunFile>> {
        let mut run = RunFile::default();
        let mut edits = Vec::new();
        let mut finish = |part: HiddenPart| {
            let path = self.root.join(part.hidden_path(self.format));
            hidden.push((path.clone(), self.root.join(part.path(self.format))));
            let name = part.name();
            let bytes = part.file.finish().map_err(Error::on(&path))?;
            Ok(RunPart { name, bytes })
        };
        for writer in writers {
            edits.append(&mut writer.edits);
            while let Some(part) = writer.parts.pop() {
                run.parts.push(finish(part)?);
            }
        }
        let mut rewritten = self.writer();
        for (old, new) in self.edited(&edits, &mut rewritten)? {
            run.rewritten.push((old, new.map(&mut finish).transpose()?));
        }
        for one in &edits {
            match &one.edit {
                RowEdit::Replace(_) => {}
                RowEdit::Forget => run.moved.push((one.origin.clone(), None)),
                RowEdit::Rename(name) => run.moved.push((one.origin.clone(), Some(name.clone()))),
            }
        }
        if run.parts.is_empty() && run.rewritten.is_empty() && run.moved.is_empty() && origins.is_empty() {
            return Ok(None);
        }
        for (origin, state) in origins {
            let state = OriginState::of(state);
            run.origins.extend(state.map(|state| OriginRun { origin: origin.clone(), state }));
        }
        for table in TableKind::ALL {
            sync_folder(&self.root.join(table.name()))?;
        }
        let own = self.root.join(OWN_FOLDER);
        let data = serde_json::to_vec(&run).expect("maps with texts as keys");
        write_durably(&own, &format!("run-{:08}.json", self.next_run), &data)?;
        Ok(Some(run))
    }

    /// Writes the files whose rows change with `edits` anew. Returns the name of each old file with the new
    /// one, if rows are left.
    fn edited(
        &self,
        edits: &[OriginEdit],
        writer: &mut PartWriter,
    ) -> Result<Vec<(String, Option<HiddenPart>)>> {
        let mut rewritten = Vec::new();
        for run in &self.runs {
            let of_run: Vec<&OriginEdit> =
                edits.iter().filter(|edit| run.origins.contains(&edit.origin)).collect();
            if of_run.is_empty() {
                continue;
            }
            for RunPart { name: part, .. } in &run.parts {
                let path = self.root.join(format!("{part}.{}", self.format.name()));
                let table = part.split('/').next().unwrap_or_default();
                let Some(table) = TableKind::ALL.iter().find(|kind| kind.name() == table) else { continue };
                let mut take = |batch: &RecordBatch| writer.write(*table, batch);
                let is_changed = edited_rows(&path, *table, self.format, &of_run, &mut take);
                if is_changed.map_err(Error::on(&path))? {
                    rewritten.push((part.clone(), writer.parts.pop()));
                }
            }
        }
        Ok(rewritten)
    }
}

fn check_settings(root: &Path, own: &Path, format: FileFormat, settings: &MineSettings) -> Result<()> {
    let path = own.join("dataset.json");
    match fs::read(&path) {
        Ok(data) => {
            let damaged = |what: String| Error::Damaged { path: path.clone(), what };
            let file: DatasetFile = serde_json::from_slice(&data).map_err(|e| damaged(e.to_string()))?;
            check_version(root, file.version)?;
            if file.format != format.name() || !file.settings.are(settings) {
                let (format, flags) = (Some(file.format), file.settings.flags());
                return Err(Error::OtherSettings { path: root.to_owned(), format, flags });
            }
            Ok(())
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let (format, settings) = (format.name().to_owned(), settings.into());
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

impl MineOutput for Dataset {
    type Writer = PartWriter;

    fn writers(&mut self, count: usize) -> Vec<PartWriter> {
        (0..count).map(|_| self.writer()).collect()
    }

    fn add(&mut self, writers: &mut [&mut PartWriter], origins: Vec<(String, MinedState)>) -> Result<()> {
        let mut hidden = Vec::new();
        let run = self.write_run(writers, &origins, &mut hidden).inspect_err(|_| {
            hidden.iter().for_each(|(path, _)| drop(fs::remove_file(path)));
        })?;
        let Some(run) = run else { return Ok(()) };
        self.next_run += 1;
        for (old, _) in &run.rewritten {
            let path = self.root.join(format!("{old}.{}", self.format.name()));
            fs::remove_file(&path).map_err(Error::on(&path))?;
        }
        for (from, to) in hidden {
            fs::rename(&from, &to).map_err(Error::on(&to))?;
        }
        self.took_place(&run.rewritten);
        self.moved(&run.moved);
        let names = origins.iter().map(|(origin, _)| origin.clone()).collect();
        self.runs.push(RunRows { parts: run.parts, origins: names });
        self.states.extend(origins);
        Ok(())
    }

    fn discard(&mut self, _: &mut PartWriter) -> PartWriter {
        self.writer()
    }

    fn wants_commit(_: &PartWriter) -> bool {
        false
    }

    fn state(&self, origin: &str) -> MinedState {
        self.states.get(origin).cloned().unwrap_or_default()
    }

    fn origins(&self) -> Vec<String> {
        self.states.keys().cloned().collect()
    }

    fn edit(&mut self, edits: Vec<OriginEdit>) -> Result<()> {
        let mut writer = self.writer();
        writer.edits = edits;
        self.add(&mut [&mut writer], Vec::new())
    }

    fn is_usable(&self) -> bool {
        let path = self.root.join(OWN_FOLDER).join(".probe");
        let written = fs::write(&path, vec![0; PROBE_BYTES]);
        let _ = fs::remove_file(&path);
        written.is_ok()
    }

    fn error(&self, e: io::Error) -> Error {
        Error::on(&self.root)(e)
    }
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

    fn name_of(table: TableKind, stem: &str) -> String {
        format!("{}/{stem}", table.name())
    }

    fn name(&self) -> String {
        HiddenPart::name_of(self.table, &self.stem)
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
    edits: Vec<OriginEdit>,
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

    fn remove(&mut self, origin: &str, rows: ReplacedRows) -> io::Result<()> {
        self.edits.push(OriginEdit { origin: origin.to_owned(), edit: RowEdit::Replace(rows) });
        Ok(())
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
