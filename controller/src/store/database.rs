//! The durable half of the store. Values are record bytes; a commit says up to which segment
//! the journal is in it, so that none is applied twice or skipped, whenever the process dies.

use std::{io, path::Path};

use keepline_engine::gateway::{Change, Records};
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable as _, StorageBackend,
    StorageError, TableDefinition, TableError, backends::InMemoryBackend,
};

use super::record;

const BINDINGS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("bindings");
const DIALOGS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("dialogs");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The version of tables and values.
const SCHEMA: u64 = 1;
/// The keys of [`META`].
const SCHEMA_KEY: &str = "schema";
const FOLDED_KEY: &str = "folded";
/// Pages redb may hold in memory: the whole store of a large branch.
const CACHE: usize = 8 << 20;

/// Why the database cannot be used.
#[derive(Debug)]
pub(super) enum Error {
    /// Another process has it.
    InUse,
    /// It is damaged, or not ours.
    Unusable(String),
    /// The kernel refuses.
    Io(io::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse => out.write_str("in use by another process"),
            Self::Unusable(why) => out.write_str(why),
            Self::Io(error) => error.fmt(out),
        }
    }
}

/// Everything the database holds, and the last segment that is in it.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) records: Records,
    pub(super) folded: u64,
}

/// Opens or makes the database.
pub(super) fn open(path: &Path) -> Result<(Database, Loaded), Error> {
    // Every page is checked: a damaged one is an error here instead of a panic later.
    let database = Builder::new()
        .set_cache_size(CACHE)
        .set_check_integrity_on_open(true)
        .create(path)
        .map_err(Error::from)?;
    let loaded = load(&database)?;
    Ok((database, loaded))
}

/// Reads a database that cannot be written to, from a copy in memory: one that was not closed must
/// be put in order before it is read.
pub(super) fn peek(path: &Path) -> Result<Loaded, Error> {
    let bytes = std::fs::read(path).map_err(Error::Io)?;
    let copy = InMemoryBackend::new();
    StorageBackend::set_len(&copy, bytes.len() as u64)
        .and_then(|()| StorageBackend::write(&copy, 0, &bytes))
        .map_err(|error| Error::Unusable(error.to_string()))?;
    let mut builder = Builder::new();
    let database = builder.set_cache_size(CACHE).create_with_backend(copy);
    load(&database.map_err(Error::from)?)
}

/// Applies changes in one durable commit.
pub(super) fn fold(database: &Database, changes: &[Change], folded: u64) -> Result<(), Error> {
    let write = database.begin_write().map_err(redb::Error::from)?;
    {
        let mut bindings = write.open_table(BINDINGS)?;
        let mut dialogs = write.open_table(DIALOGS)?;
        for change in changes {
            match change {
                Change::Binding(binding) => {
                    bindings.insert(binding.id, record::binding(binding).as_slice())?;
                }
                Change::Dialog(dialog) => {
                    dialogs.insert(dialog.id, record::dialog(dialog).as_slice())?;
                }
                Change::BindingGone(id) => drop(bindings.remove(id)?),
                Change::DialogGone(id) => drop(dialogs.remove(id)?),
                Change::Anew => {
                    bindings.retain(|_, _| false)?;
                    dialogs.retain(|_, _| false)?;
                }
            }
        }
        let mut meta = write.open_table(META)?;
        meta.insert(SCHEMA_KEY, SCHEMA)?;
        meta.insert(FOLDED_KEY, folded)?;
    }
    write.commit().map_err(redb::Error::from)?;
    Ok(())
}

fn load(database: &impl ReadableDatabase) -> Result<Loaded, Error> {
    let read = database.begin_read().map_err(redb::Error::from)?;
    let meta = match read.open_table(META) {
        Ok(meta) => meta,
        // Just made.
        Err(TableError::TableDoesNotExist(_)) if is_empty(&read)? => return Ok(Loaded::default()),
        Err(error) => return Err(error.into()),
    };
    let number = |key| Ok::<_, StorageError>(meta.get(key)?.map(|value| value.value()));
    match number(SCHEMA_KEY)? {
        Some(SCHEMA) => {}
        other => {
            return Err(Error::Unusable(format!(
                "its schema is {other:?}, this version reads {SCHEMA}"
            )));
        }
    }
    let mut loaded = Loaded {
        folded: number(FOLDED_KEY)?.unwrap_or_default(),
        ..Loaded::default()
    };
    let mut unread = 0_u32;
    for entry in read.open_table(BINDINGS)?.iter()? {
        match record::read_binding(entry?.1.value()) {
            Some(binding) => loaded.records.bindings.push(binding),
            None => unread += 1,
        }
    }
    for entry in read.open_table(DIALOGS)?.iter()? {
        match record::read_dialog(entry?.1.value()) {
            Some(dialog) => loaded.records.dialogs.push(dialog),
            None => unread += 1,
        }
    }
    if unread > 0 {
        tracing::warn!(unread, "stored records cannot be read and are left out");
    }
    Ok(loaded)
}

/// Whether no table was ever made in it: a database of something else is not taken over.
fn is_empty(read: &redb::ReadTransaction) -> Result<bool, StorageError> {
    Ok(read.list_tables()?.next().is_none() && read.list_multimap_tables()?.next().is_none())
}

impl From<DatabaseError> for Error {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => Self::InUse,
            other => redb::Error::from(other).into(),
        }
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<TableError> for Error {
    fn from(error: TableError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<redb::Error> for Error {
    fn from(error: redb::Error) -> Self {
        match error {
            // What redb says of a file that is none of its own, or ends too early.
            redb::Error::Io(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
                ) =>
            {
                Self::Unusable("it is no database of keepline".to_owned())
            }
            redb::Error::Io(error) => Self::Io(error),
            // After a failed write redb wants to be opened again.
            redb::Error::PreviousIo => Self::Io(io::Error::other("an earlier write failed")),
            other => Self::Unusable(other.to_string()),
        }
    }
}
