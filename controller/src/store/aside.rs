//! What cannot be read is set aside under a name of its own: it may be somebody else's, and it
//! may be worth a look.

use std::{
    fmt::Display,
    fs, io,
    path::{Path, PathBuf},
};

/// How many damaged files of one name are kept; the last is replaced.
const KEPT: u32 = 9;

/// Renames `path` to `NAME.damaged-N` and says so in one sentence.
///
/// # Errors
/// When it cannot be renamed.
pub(super) fn set(path: &Path, why: impl Display) -> io::Result<()> {
    let to = free_name(path);
    fs::rename(path, &to)?;
    tracing::warn!(
        "{} cannot be used ({why}): it was set aside as {} and state begins empty",
        path.display(),
        to.display()
    );
    Ok(())
}

fn free_name(path: &Path) -> PathBuf {
    let name = |n: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{n}"));
        PathBuf::from(name)
    };
    (1..KEPT)
        .map(name)
        .find(|path| !path.exists())
        .unwrap_or_else(|| name(KEPT))
}
