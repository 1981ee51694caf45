//! The options for digests of the files: which are computed, and where they go.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use netblt::{ChecksumOptions, ExpectedDigests, HashAlgorithms, ManifestFormat, Options};

use crate::exit::{Code, Failure};

/// Which digests are computed, and where they go.
#[derive(Args, Debug)]
pub(crate) struct ChecksumArgs {
    /// Write names and digests of the transferred files to FILE, as b3sum does
    ///
    /// See --manifest-format for other formats.
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// The format of --manifest
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = FormatName::B3sum,
          requires = "manifest")]
    pub(crate) manifest_format: FormatName,
    /// Compute these digests of the files, too: blake3, sha256, sha512, md5, crc32c, adler32
    ///
    /// Names between commas. They are computed on this machine while the data pass, on one thread
    /// each. Of data that come out of order, or that were here before, the file is read again for
    /// them. They go into --manifest, with --manifest-format json or bagit, and into the events of
    /// --json.
    #[arg(long, value_name = "LIST", value_parser = algorithms)]
    pub(crate) hash: Option<HashAlgorithms>,
    /// Compare the files with the list in FILE, which sha256sum, md5sum or b3sum has written
    ///
    /// Lines with tags are read, too, and the manifest of a bag (manifest-ALGORITHM.txt). Names are
    /// relative to the directory that the files arrive in. A receiving side gives a file with
    /// another digest no name, and a sending side leaves it out; it is named (exit code 65). So is
    /// a name in the list that does not come (exit code 23). Files that are not in the list are
    /// counted. 64 digits are SHA-256 or BLAKE3; --hash may say which.
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Option<PathBuf>,
}

/// The format of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatName {
    /// BLAKE3, as b3sum writes it
    B3sum,
    /// SHA-256, as sha256sum writes it
    Sha256sum,
    /// MD5, as md5sum writes it
    Md5sum,
    /// FILE is the directory of a bag (BagIt), and gets bagit.txt and a manifest for each --hash
    /// [default: sha512]
    Bagit,
    /// JSON lines with the digests of all --hash
    Json,
}

impl From<FormatName> for ManifestFormat {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::B3sum => Self::B3sum,
            FormatName::Sha256sum => Self::Sha256sum,
            FormatName::Md5sum => Self::Md5sum,
            FormatName::Bagit => Self::Bagit,
            FormatName::Json => Self::Json,
        }
    }
}

impl ChecksumArgs {
    /// Sets the options of a transfer. An algorithm whose digests go nowhere is an error; `json`:
    /// the events have them; `store`: attributes of received files do.
    pub(crate) fn apply(
        &self,
        options: &mut Options,
        json: bool,
        store: bool,
    ) -> Result<(), Failure> {
        let chosen = self.hash.unwrap_or_default();
        let mut checksums = ChecksumOptions::default();
        checksums.algorithms = chosen;
        checksums.manifest_format = self.manifest_format.into();
        let listed = self.manifest.as_ref().map(|_| checksums.manifest_format.algorithms(chosen));
        let expected = self.expect.as_deref().map(|path| ExpectedDigests::read(path, chosen));
        let expected = expected.transpose();
        let expected = expected.map_err(|error| Failure::new(Code::File, error.to_string()))?;
        let compared = expected.as_ref().map(ExpectedDigests::algorithms).unwrap_or_default();
        let listed = listed.unwrap_or_default().and(compared);
        let unused: HashAlgorithms = chosen.iter().filter(|one| !listed.contains(*one)).collect();
        if !unused.is_empty() && !json && !store {
            return Err(Failure::usage(format!(
                "--hash: the digests of {unused} go nowhere: add --manifest FILE with \
                 --manifest-format json or bagit, --expect, --json or at the receiving side \
                 --store-hash"
            )));
        }
        options.manifest.clone_from(&self.manifest);
        checksums.store = store;
        checksums.expected = expected.map(Arc::new);
        options.checksums = checksums;
        Ok(())
    }

    /// The first of the options that is given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        match self {
            Self { manifest: Some(_), .. } => Some("--manifest"),
            Self { hash: Some(_), .. } => Some("--hash"),
            Self { expect: Some(_), .. } => Some("--expect"),
            _ => None,
        }
    }
}

fn algorithms(value: &str) -> Result<HashAlgorithms, String> {
    value.parse()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        checksums: ChecksumArgs,
    }

    fn applied(words: &[&str], used: bool) -> Result<Options, String> {
        let line = Line::try_parse_from([&["x"][..], words].concat());
        let line = line.map_err(|error| error.to_string())?;
        let mut options = Options::default();
        let applied = line.checksums.apply(&mut options, used, false);
        applied.map(|()| options).map_err(|failure| failure.message)
    }

    #[test]
    fn digests_go_somewhere() {
        let json = ["--manifest", "m", "--manifest-format", "json", "--hash", "md5,blake3"];
        let options = applied(&json, false).expect("taken");
        assert_eq!(options.checksums.algorithms.to_string(), "blake3,md5");
        assert_eq!(options.checksums.manifest_format, ManifestFormat::Json);
        for words in [
            &["--hash", "md5"][..],
            &["--hash", "blake3"],
            &["--manifest", "m", "--hash", "sha256,blake3"],
            &["--manifest", "m", "--manifest-format", "md5sum", "--hash", "md5,sha256"],
        ] {
            let said = applied(words, false).expect_err("refused");
            assert!(said.starts_with("--hash: the digests of "), "{words:?}: {said}");
            assert!(applied(words, true).is_ok(), "{words:?}");
        }
        let said = applied(&["--hash", "md5,sha1"], true).expect_err("refused");
        assert!(said.contains("there is no algorithm \"sha1\"; there are blake3, "), "{said}");
        let said = applied(&["--expect", "/nowhere/list"], true).expect_err("no file");
        assert!(said.starts_with("/nowhere/list: the list of digests cannot be read: "), "{said}");
        let said = applied(&["--manifest-format", "json"], true).expect_err("refused");
        assert!(said.contains("--manifest <FILE>"), "{said}");
    }
}
