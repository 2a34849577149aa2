//! The report of a run as files: `report.json` for programs, `report.html` for people, `timeline.svg`.
//!
//! The page is one file that loads nothing: style, drawings and pictures are inside. It reads without scripts,
//! in light and in dark, and prints.

mod bench_charts;
mod bench_page;
mod birds_eye;
mod charts;
mod gallery;
mod html;
mod markup;
mod moments;
mod profile_svg;
mod time_axis;
mod timeline_svg;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use self::birds_eye::{SweepFrame, birds_eye_png};
pub use self::profile_svg::profile_svg;
use super::bench::{BenchResult, Collected};
use super::{RunSummary, Timeline};
use crate::outputs::Detections2D;

/// File name of the summary for programs.
pub const JSON_FILE: &str = "report.json";
/// File name of the page.
pub const HTML_FILE: &str = "report.html";
/// File name of the page of a benchmark.
pub const BENCH_FILE: &str = "bench.html";
/// File name of the timeline.
pub const TIMELINE_FILE: &str = "timeline.svg";

/// A frame that the report shows as a picture. Which ones, and how many, is the caller's choice.
#[derive(Debug, Clone)]
pub struct ReportFrame {
    /// Name of the stream.
    pub stream: String,
    /// Position in the stream.
    pub seq: u64,
    /// Sensor stamp in nanoseconds.
    pub stamp_ns: i64,
    /// Width of the source image, which boxes refer to.
    pub width_px: u32,
    /// Height of the source image.
    pub height_px: u32,
    /// The picture as JPEG; may be smaller than the source image. Anything else leaves the boxes without a
    /// picture.
    pub jpeg: Vec<u8>,
    /// The objects found in it.
    pub detections: Detections2D,
    /// What is really there, where it is known: left, top, right and bottom in pixels of the source image.
    pub truth: Vec<[f32; 4]>,
}

/// What a report tells besides the run in numbers.
#[derive(Debug, Clone, Default)]
pub struct ReportPictures {
    /// Camera frames.
    pub frames: Vec<ReportFrame>,
    /// Sweeps from above.
    pub sweeps: Vec<SweepFrame>,
    /// How good the results are, where the truth is known.
    pub quality: Vec<QualityTable>,
}

/// A table of results against the truth.
#[derive(Debug, Clone, Default)]
pub struct QualityTable {
    /// What was measured.
    pub title: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// A name and the other columns' values a row.
    pub rows: Vec<Vec<String>>,
    /// How it was measured.
    pub note: String,
}

/// A report that cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The folder cannot be made.
    #[error("report folder {dir} cannot be created")]
    Create {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is something else of that name.
    #[error("report folder {dir} is not a folder")]
    NotAFolder {
        /// The path.
        dir: PathBuf,
    },
    /// A file in the folder cannot be written.
    #[error("report file {path} cannot be written")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The summary has no JSON form.
    #[error("the run summary cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}

/// Makes the folder and proves that files can be written to it, so that a run need not end to find out.
///
/// # Errors
/// [`ReportError::NotAFolder`], [`ReportError::Create`] or [`ReportError::Write`].
pub fn prepare_dir(dir: &Path) -> Result<(), ReportError> {
    if dir.exists() && !dir.is_dir() {
        return Err(ReportError::NotAFolder { dir: dir.to_owned() });
    }
    fs::create_dir_all(dir).map_err(|source| ReportError::Create {
        dir: dir.to_owned(),
        source,
    })?;
    let probe = dir.join(format!(".writable-{}", std::process::id()));
    write_file(&probe, b"")?;
    fs::remove_file(&probe).map_err(|source| ReportError::Write { path: probe, source })
}

/// Writes the report into a folder that [`prepare_dir`] has prepared. Files of an earlier report are replaced.
///
/// # Errors
/// [`ReportError::Write`] or [`ReportError::Json`].
pub fn write(
    dir: &Path,
    summary: &RunSummary,
    pictures: &ReportPictures,
    timeline: &Timeline,
) -> Result<(), ReportError> {
    let mut json = serde_json::to_vec_pretty(summary)?;
    json.push(b'\n');
    write_file(&dir.join(JSON_FILE), &json)?;
    write_file(
        &dir.join(TIMELINE_FILE),
        timeline_svg::standalone(timeline).as_bytes(),
    )?;
    write_file(
        &dir.join(HTML_FILE),
        html::page(summary, pictures, timeline).as_bytes(),
    )
}

/// Writes the page of a benchmark into a folder that [`prepare_dir`] has prepared.
///
/// # Errors
/// [`ReportError::Write`].
pub fn write_bench(dir: &Path, result: &BenchResult, collected: &Collected) -> Result<(), ReportError> {
    write_file(
        &dir.join(BENCH_FILE),
        bench_page::page(result, collected).as_bytes(),
    )
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    fs::write(path, bytes).map_err(|source| ReportError::Write {
        path: path.to_owned(),
        source,
    })
}
