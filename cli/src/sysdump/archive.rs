//! Writes a dump with bounded memory: each file is spooled, and the archive is compressed into a temporary file.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use tar::{EntryType, Header};
use tempfile::{NamedTempFile, SpooledTempFile};

use super::redact::Redactor;
use super::{INDEX, Index, IndexedFile, MAX_FILE, MAX_TOTAL, Redacted};

/// What a spooled file has in memory at most, in bytes.
const IN_MEMORY: usize = 1 << 20;
/// The longest path that stays as it is. The header of tar has 100 bytes for the last part and 155 for the others.
const MAX_PART: usize = 90;

/// A file of a dump that is being filled.
pub(super) struct Entry {
    path: String,
    spool: SpooledTempFile,
    bytes: u64,
    lines: u64,
    cut: bool,
    redactor: Redactor,
    /// The first error. What is added after it is dropped.
    failure: Option<io::Error>,
}

impl Entry {
    /// An empty file. A part of the path that tar has no room for is shortened.
    pub(super) fn new(path: &str) -> Self {
        Self {
            path: fitting(path),
            spool: SpooledTempFile::new(IN_MEMORY),
            bytes: 0,
            lines: 0,
            cut: false,
            redactor: Redactor::default(),
            failure: None,
        }
    }

    /// Gives it another path.
    pub(super) fn rename(&mut self, path: &str) {
        self.path = fitting(path);
    }

    /// Adds an object or a message as one line, redacted.
    pub(super) fn object(&mut self, object: &impl Serialize) {
        match serde_json::to_value(object) {
            Ok(mut object) => {
                self.redactor.value(&mut object);
                self.record(&object);
            }
            Err(error) => self.fail(error.into()),
        }
    }

    /// Adds a record, as one line, as it is.
    pub(super) fn record(&mut self, record: &impl Serialize) {
        match serde_json::to_string(record) {
            Ok(line) => self.line(&line),
            Err(error) => self.fail(error.into()),
        }
    }

    /// Adds a line of a log or of another text, redacted.
    pub(super) fn text(&mut self, line: &str) {
        if let Some(line) = self.redactor.line(line) {
            self.line(&line);
        }
    }

    /// What redacts the content of this file, and notes what it takes out.
    pub(super) fn redactor(&mut self) -> &mut Redactor {
        &mut self.redactor
    }

    fn fail(&mut self, error: io::Error) {
        self.failure = self.failure.take().or(Some(error));
    }

    /// Adds a line of text, as it is.
    pub(super) fn line(&mut self, line: &str) {
        let size = line.len() as u64 + 1;
        if self.cut || self.failure.is_some() {
            return;
        }
        if self.bytes + size > MAX_FILE {
            self.cut = true;
            return;
        }
        let written = self.spool.write_all(line.as_bytes()).and_then(|()| self.spool.write_all(b"\n"));
        match written {
            Ok(()) => {
                self.bytes += size;
                self.lines += 1;
            }
            Err(error) => self.fail(error),
        }
    }

    /// True until something did not fit.
    pub(super) fn has_room(&self) -> bool {
        !self.cut && self.failure.is_none()
    }

    /// The number of its lines.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }
}

/// The path with parts that tar has room for.
fn fitting(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').map(|part| shortened(part, MAX_PART)).collect();
    parts.join("/")
}

/// The beginning of a text with at most `size` bytes.
fn shortened(text: &str, size: usize) -> &str {
    let mut end = text.len().min(size);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The size of a block of tar, in bytes.
const BLOCK: usize = 512;

/// A dump that is being written.
pub(super) struct Writer {
    body: GzEncoder<File>,
    files: Vec<IndexedFile>,
    redacted: Vec<Redacted>,
    paths: BTreeSet<String>,
    total: u64,
}

impl Writer {
    /// A dump without files.
    pub(super) fn new() -> io::Result<Self> {
        let body = GzEncoder::new(tempfile::tempfile()?, Compression::default());
        Ok(Self { body, files: Vec::new(), redacted: Vec::new(), paths: BTreeSet::new(), total: 0 })
    }

    /// Adds a file. It is left out, and false is returned, if the dump has no room for it.
    pub(super) fn add(&mut self, entry: Entry) -> io::Result<bool> {
        let Entry { path, mut spool, bytes, lines, cut, redactor, failure } = entry;
        if let Some(failure) = failure {
            return Err(failure);
        }
        if self.total + bytes > MAX_TOTAL {
            return Ok(false);
        }
        let path = self.unused(path);
        spool.seek(SeekFrom::Start(0))?;
        append(&mut self.body, &path, bytes, &mut spool)?;
        self.total += bytes;
        self.paths.insert(path.clone());
        let redacted = redactor.into_found();
        let redacted = redacted.map(|(place, why, count)| Redacted { path: path.clone(), place, why, count });
        self.redacted.extend(redacted);
        self.files.push(IndexedFile { path, bytes, lines, cut });
        Ok(true)
    }

    /// The path, with a number behind its name if another file has it.
    fn unused(&self, path: String) -> String {
        if !self.paths.contains(&path) {
            return path;
        }
        let mut numbered = (2u32..).map(|number| format!("{path}.{number}"));
        numbered.find(|path| !self.paths.contains(path)).unwrap_or(path)
    }

    /// The files so far.
    pub(super) fn files(&self) -> &[IndexedFile] {
        &self.files
    }

    /// What was taken out of them.
    pub(super) fn redacted(&self) -> &[Redacted] {
        &self.redacted
    }

    /// Writes the dump to a new file that only its owner may read. It returns the size of the file.
    pub(super) fn finish(self, index: &Index, file: &Path) -> io::Result<u64> {
        let mut body = self.body;
        // Two empty blocks end an archive.
        body.write_all(&[0; 2 * BLOCK])?;
        let mut body = body.finish()?;
        body.seek(SeekFrom::Start(0))?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mut output = NamedTempFile::new_in(parent.unwrap_or(Path::new(".")))?;
        // The index is a gzip member of its own before the others: its content is known last.
        let mut head = GzEncoder::new(output.as_file_mut(), Compression::default());
        let text = serde_json::to_vec_pretty(index)?;
        append(&mut head, INDEX, text.len() as u64, &mut text.as_slice())?;
        head.finish()?;
        io::copy(&mut body, output.as_file_mut())?;
        output.as_file().sync_all()?;
        let size = output.as_file().metadata()?.len();
        output.persist_noclobber(file)?;
        Ok(size)
    }
}

/// Writes one entry of a tar archive.
fn append(archive: &mut impl Write, path: &str, size: u64, content: &mut impl Read) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_path(path)?;
    header.set_entry_type(EntryType::Regular);
    header.set_size(size);
    header.set_mode(0o600);
    header.set_cksum();
    archive.write_all(header.as_bytes())?;
    let written = io::copy(content, archive)?;
    let padding = usize::try_from(written % BLOCK as u64).map_or(0, |rest| (BLOCK - rest) % BLOCK);
    archive.write_all(&[0; BLOCK][..padding])
}
