//! The store on disk. The driver's thread appends to the journal; a thread of its own moves
//! closed segments into the database.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use keepline_engine::gateway::{Change, Records};
use redb::Database;

use super::{
    Health, OpenError, Store, aside,
    database::{self, Loaded},
    record,
    segment::{self, Content, Writer},
};

/// The database's file below the store's directory.
const DATABASE: &str = "state.redb";
/// What the names of segments begin with; a number follows.
const SEGMENT: &str = "journal-";
/// How often the journal goes into the database.
const BATCH: Duration = Duration::from_secs(1);
/// Bytes of journal that may wait while the database cannot be written.
const MAX_WAITING: u64 = 64 << 20;

/// The store in a directory. Dropping it moves the journal into the database.
#[derive(Debug)]
pub struct FileStore {
    shared: Arc<Shared>,
    folder: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    journal: Mutex<Journal>,
    wake: Condvar,
}

/// The journal's present state.
#[derive(Debug, Default)]
struct Journal {
    /// The segment that is written to; `None` after a failure, until the next batch.
    writer: Option<Writer>,
    /// Its number.
    number: u64,
    /// Whether it holds anything.
    written: bool,
    /// Bytes that are in no commit yet.
    waiting: u64,
    lost: u64,
    failing: Option<String>,
    recovered: bool,
    stopping: bool,
}

impl FileStore {
    /// Opens the store in a directory, which must exist, and reads what it holds. A damaged or
    /// foreign file is set aside. Without write access what can be read is read, and every
    /// change is lost, which [`Store::health`] tells.
    ///
    /// # Errors
    /// When another process uses it, or the directory cannot be read.
    pub fn open(directory: &Path) -> Result<(Self, Records), OpenError> {
        let unreadable = |source| OpenError::Directory {
            path: directory.to_owned(),
            source,
        };
        let (database, loaded, mut failing) = open_database(&directory.join(DATABASE))?;
        let Loaded {
            mut records,
            folded,
        } = loaded;
        let found = segments(directory).map_err(unreadable)?;
        let last = found.last().copied().unwrap_or_default().max(folded);
        let newer: Vec<u64> = found.into_iter().filter(|n| *n > folded).collect();
        let changes = read_segments(directory, &newer);
        let changes = changes
            .iter()
            .filter_map(|bytes| record::read_change(bytes));
        changes.for_each(|change| records.apply(change));
        let mut journal = Journal {
            number: last,
            ..Journal::default()
        };
        if let Err(error) = journal.roll(directory) {
            failing = failing.or(Some(error.to_string()));
        }
        journal.failing = failing;
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            journal: Mutex::new(journal),
            wake: Condvar::new(),
        });
        let folder = Folder {
            shared: shared.clone(),
            database,
            folded,
        };
        let folder = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || folder.run())
            .map_err(unreadable)?;
        let store = Self {
            shared,
            folder: Some(folder),
        };
        Ok((store, records))
    }
}

impl Store for FileStore {
    fn append(&mut self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        let mut journal = self.shared.lock();
        let lost = changes.len() as u64;
        let result = match &mut journal.writer {
            Some(writer) => writer.append(changes.iter().map(record::change)),
            None => {
                journal.lost += lost;
                return;
            }
        };
        match result {
            Ok(bytes) => {
                journal.written = true;
                journal.waiting += bytes;
                if journal.waiting > MAX_WAITING {
                    journal.fail("the journal is full: the database takes nothing".to_owned());
                }
            }
            Err(error) => {
                journal.lost += lost;
                journal.fail(error.to_string());
            }
        }
    }

    fn health(&mut self) -> Health {
        let mut journal = self.shared.lock();
        Health {
            failing: journal.failing.clone(),
            recovered: std::mem::take(&mut journal.recovered),
            lost: journal.lost,
        }
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.wake.notify_all();
        if let Some(folder) = self.folder.take() {
            // It has said why when it panicked.
            let _ = folder.join();
        }
    }
}

impl Shared {
    /// A panic elsewhere leaves the journal as usable as any other failure does.
    fn lock(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal {
    /// Begins the next segment.
    fn roll(&mut self, directory: &Path) -> io::Result<()> {
        let writer = Writer::create(&segment_path(directory, self.number + 1))?;
        self.writer = Some(writer);
        self.number += 1;
        self.written = false;
        Ok(())
    }

    /// Changes are lost from now on, until the next segment can be begun.
    fn fail(&mut self, why: String) {
        self.writer = None;
        self.failing = Some(why);
    }
}

/// The thread that moves the journal into the database.
struct Folder {
    shared: Arc<Shared>,
    /// Open unless its last use failed.
    database: Option<Database>,
    /// The last segment that is in it.
    folded: u64,
}

impl Folder {
    fn run(mut self) {
        loop {
            let stopping = self.wait();
            self.batch();
            if stopping {
                return;
            }
        }
    }

    /// Waits for the next batch; whether it is the last.
    fn wait(&self) -> bool {
        let journal = self.shared.lock();
        let waited = self
            .shared
            .wake
            .wait_timeout_while(journal, BATCH, |journal| !journal.stopping);
        waited.unwrap_or_else(PoisonError::into_inner).0.stopping
    }

    /// Closes the segment that is written to, moves everything before it into the database,
    /// and takes the journal's failure back when both work again.
    fn batch(&mut self) {
        let (before, opened) = {
            let mut journal = self.shared.lock();
            let room = journal.waiting <= MAX_WAITING;
            let opened = match journal.writer {
                Some(_) if !journal.written => Ok(()),
                None if !room => Err(io::Error::other("the journal is full")),
                _ => journal.roll(&self.shared.directory),
            };
            // The segment that is written to is never read here.
            let before = journal.number + u64::from(journal.writer.is_none());
            (before, opened)
        };
        let folded = self.fold(before);
        let mut journal = self.shared.lock();
        match (opened.map_err(database::Error::Io), folded) {
            (Ok(()), Ok(bytes)) => {
                journal.waiting = journal.waiting.saturating_sub(bytes);
                // It may have failed again meanwhile.
                if journal.writer.is_some() && journal.failing.take().is_some() {
                    journal.recovered = true;
                }
            }
            (Err(error), _) | (_, Err(error)) => {
                journal.failing.get_or_insert(error.to_string());
            }
        }
    }

    /// Moves the segments before `before` into the database; the bytes they held.
    fn fold(&mut self, before: u64) -> Result<u64, database::Error> {
        let directory = &self.shared.directory;
        let database = match self.database.take() {
            Some(database) => database,
            None => database::open(&directory.join(DATABASE))?.0,
        };
        let mut closed = segments(directory).map_err(database::Error::Io)?;
        closed.retain(|number| *number < before);
        let new: Vec<u64> = (closed.iter().copied())
            .filter(|number| *number > self.folded)
            .collect();
        if let Some(last) = new.last().copied() {
            let changes = record::read_last(&read_segments(directory, &new));
            database::fold(&database, &changes, last)?;
            self.folded = last;
        }
        // Put back only after success: redb wants to be opened again after a failed write.
        self.database = Some(database);
        let mut bytes = 0;
        for number in closed {
            let path = segment_path(directory, number);
            bytes += fs::metadata(&path).map_or(0, |file| file.len());
            // One that stays is known to be in the database: it is not applied again.
            let _ = fs::remove_file(path);
        }
        Ok(bytes)
    }
}

type Opened = (Option<Database>, Loaded, Option<String>);

/// The database, or why it cannot be written to; what cannot be used is set aside.
fn open_database(path: &Path) -> Result<Opened, OpenError> {
    let mut result = database::open(path);
    if let Err(database::Error::Unusable(why)) = &result {
        result = match aside::set(path, why) {
            Ok(()) => database::open(path),
            Err(error) => Err(database::Error::Io(error)),
        };
    }
    match result {
        Ok((database, loaded)) => Ok((Some(database), loaded, None)),
        Err(database::Error::InUse) => Err(OpenError::InUse(path.to_owned())),
        Err(error) => {
            let loaded = database::peek(path).unwrap_or_default();
            Ok((None, loaded, Some(error.to_string())))
        }
    }
}

fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{SEGMENT}{number}"))
}

/// The numbers of all segments, ascending.
fn segments(directory: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(SEGMENT));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The bytes of the changes of these segments, in order. A segment that is not ours is set aside;
/// one that cannot be read says so and is left out.
fn read_segments(directory: &Path, numbers: &[u64]) -> Vec<Vec<u8>> {
    let mut changes = Vec::new();
    for number in numbers {
        let path = segment_path(directory, *number);
        match segment::read(&path) {
            Ok(Content::Payloads(payloads)) => changes.extend(payloads),
            Ok(Content::Foreign) => {
                if let Err(error) = aside::set(&path, "it is no journal of this version") {
                    tracing::warn!(%error, "not set aside");
                }
            }
            Err(error) => tracing::warn!(%error, path = %path.display(), "journal not read"),
        }
    }
    changes
}

#[cfg(test)]
pub(super) mod tests;
