//! The gateway's secret: it keys tokens that must be stable over restarts (branches, Contacts,
//! Call-IDs), so it lives in the store's directory.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use keepline_engine::seal::Key;

/// The secret's file below the store's directory.
const FILE: &str = "secret";

/// Reads the secret, or makes one. A damaged file is set aside with a warning: tokens of
/// before then mean nothing any more, which phones mend by their next refresh.
///
/// # Errors
/// When the directory or the file cannot be written, or the kernel has no randomness.
pub(super) fn load(directory: &Path) -> io::Result<Key> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let path = directory.join(FILE);
    match fs::read(&path) {
        Ok(bytes) => match <[u8; 32]>::try_from(bytes) {
            Ok(key) => Ok(Key(key)),
            Err(bytes) => {
                let aside = directory.join("secret.damaged");
                tracing::warn!(length = bytes.len(), aside = %aside.display(), "secret damaged: set aside");
                fs::rename(&path, aside)?;
                create(&path)
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(&path),
        Err(error) => Err(error),
    }
}

fn create(path: &Path) -> io::Result<Key> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(&key)?;
    file.sync_all()?;
    Ok(Key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_once_kept_and_replaced_when_damaged() {
        let directory =
            std::env::temp_dir().join(format!("keepline-secret-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let first = load(&directory).unwrap();
        assert_eq!(load(&directory).unwrap().0, first.0);
        fs::write(directory.join(FILE), b"short").unwrap();
        let second = load(&directory).unwrap();
        assert_ne!(second.0, first.0);
        assert_eq!(
            fs::read(directory.join("secret.damaged")).unwrap(),
            b"short"
        );
        fs::remove_dir_all(&directory).unwrap();
    }
}
