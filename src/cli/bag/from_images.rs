//! `sensorium bag from-images`: a folder of pictures as a recording of a camera.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, WrapErr, miette};

use crate::cli::recording::write_recording;
use crate::cli::report;
use crate::image::decode_image;
use crate::io::bag::BagTopic;
use crate::io::messages::{
    COMPRESSED_IMAGE_TYPE, CompressedImageMsg, HeaderMsg, IMAGE_TYPE, ImageCodec, ImageMsg,
};
use crate::io::recorder::{McapRecorder, RecordCompression};

/// Stamp of the first image: 14 November 2023, 22:13:20 UTC. Fixed, so that the same pictures make the same file.
const START_NS: u64 = 1_700_000_000_000_000_000;

/// Makes a bag of a folder of JPEG and PNG pictures, in the order of their names.
///
/// Images are decoded to sensor_msgs/Image (rgb8, mono8 or rgba8), or kept as they are in
/// sensor_msgs/CompressedImage with --compressed. The first is stamped 1700000000 s, the n-th n/hz later.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium bag from-images photos/ --out photos.mcap --hz 10
  sensorium bag from-images photos/ --out photos.mcap --hz 10 --compressed --topic /front/image/compressed")]
pub(super) struct Args {
    /// Folder of .jpg, .jpeg and .png files.
    folder: PathBuf,
    /// The file to write; its name ends in .mcap. Its folder is made if need be.
    #[arg(long)]
    out: PathBuf,
    /// Images a second.
    #[arg(long, value_parser = positive)]
    hz: f64,
    /// Topic to write to.
    #[arg(long, default_value = "/camera/image")]
    topic: String,
    /// Keep the files' own bytes instead of decoding them.
    #[arg(long)]
    compressed: bool,
    /// Coordinate frame in every header.
    #[arg(long, default_value = "camera")]
    frame_id: String,
    /// Go on past a picture that cannot be read, and say how many there were.
    #[arg(long)]
    skip_bad: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(hz) if hz.is_finite() && (1e-3..=1e6).contains(&hz) => Ok(hz),
        _ => Err("a rate between 0.001 and 1000000 images a second is expected".to_owned()),
    }
}

/// Runs the command.
///
/// # Errors
/// An output that cannot be written (told before any picture is read), no pictures, or a bad one.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    // Pictures in JPEG or PNG do not shrink any more.
    let compression = if args.compressed {
        RecordCompression::None
    } else {
        RecordCompression::Zstd
    };
    let (images, skipped) = write_recording(&args.out, |path| {
        write_all(args, McapRecorder::create(path, compression).into_diagnostic()?)
    })?;
    let skipped = match skipped {
        0 => String::new(),
        n => format!(", {n} skipped"),
    };
    report::print(&format!(
        "{}: {images} images on {}{skipped}",
        args.out.display(),
        args.topic
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes every picture; how many were written and how many skipped.
fn write_all(args: &Args, mut recorder: McapRecorder) -> miette::Result<(u64, u64)> {
    let pictures = pictures(&args.folder)?;
    let type_name = if args.compressed {
        COMPRESSED_IMAGE_TYPE
    } else {
        IMAGE_TYPE
    };
    let topic = BagTopic::of_type(&args.topic, type_name);
    let channel = recorder.add_topic(&topic).into_diagnostic()?;
    let progress = ProgressBar::new(pictures.len() as u64)
        .with_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").into_diagnostic()?);
    let (mut images, mut skipped) = (0, 0);
    for path in &pictures {
        progress.inc(1);
        let stamp_ns = START_NS + (images as f64 * 1e9 / args.hz).round() as u64;
        let message = match message(args, path, stamp_ns) {
            Ok(message) => message,
            Err(error) if args.skip_bad => {
                skipped += 1;
                // With standard error closed there is nobody left to tell; the count still says it.
                progress.suspend(|| drop(writeln!(io::stderr(), "skipped: {error}")));
                continue;
            }
            Err(error) => {
                return Err(miette!(help = "--skip-bad leaves such pictures out", "{error}"));
            }
        };
        recorder
            .write(channel, stamp_ns, stamp_ns, &message)
            .into_diagnostic()?;
        images += 1;
    }
    progress.finish_and_clear();
    recorder.finish().into_diagnostic()?;
    if images == 0 {
        return Err(miette!("none of the {} pictures can be read", pictures.len()));
    }
    Ok((images, skipped))
}

/// The pictures of a folder, by name.
fn pictures(folder: &Path) -> miette::Result<Vec<PathBuf>> {
    let context = || format!("cannot read the folder {}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)
        .into_diagnostic()
        .wrap_err_with(context)?
    {
        let path = entry.into_diagnostic().wrap_err_with(context)?.path();
        let suffix = path
            .extension()
            .and_then(|suffix| suffix.to_str())
            .map(str::to_ascii_lowercase);
        if matches!(suffix.as_deref(), Some("jpg" | "jpeg" | "png")) && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        return Err(miette!("{} holds no .jpg, .jpeg or .png file", folder.display()));
    }
    Ok(found)
}

/// One picture as a ROS 2 message; the error names the file.
fn message(args: &Args, path: &Path, stamp_ns: u64) -> Result<Vec<u8>, String> {
    let named = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let file = std::fs::read(path).map_err(|e| named(&e))?;
    let header = i64::try_from(stamp_ns)
        .ok()
        .and_then(|ns| HeaderMsg::new(ns, &args.frame_id));
    let header = header.ok_or_else(|| named(&"its stamp is beyond the year 2038; raise --hz"))?;
    let encoded = if args.compressed {
        let codec = ImageCodec::of_bytes(&file).ok_or_else(|| named(&"neither JPEG nor PNG"))?;
        let message = CompressedImageMsg {
            header,
            format: codec.ros_name(),
            data: &file,
        };
        message.encode()
    } else {
        let image = decode_image(&file).map_err(|e| named(&e))?;
        let side = |pixels: usize| u32::try_from(pixels).map_err(|e| named(&e));
        let message = ImageMsg {
            header,
            height: side(image.height())?,
            width: side(image.width())?,
            encoding: image.format().ros_encoding(),
            is_bigendian: 0,
            step: side(image.view().step())?,
            data: image.data(),
        };
        message.encode()
    };
    encoded.map_err(|e| named(&e))
}
