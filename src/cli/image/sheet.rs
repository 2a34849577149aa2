//! `sensorium image sheet`: every preset on one picture, side by side.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueHint;
use font8x8::UnicodeFonts;
use miette::IntoDiagnostic;

use super::view::Picture;
use crate::cli::report;
use crate::image::{
    Image, ImageError, PixelFormat, Preset, PresetOptions, PresetPlan, ResizePlan, Workspace, encode_png,
};

/// Width and height of a tile's picture in pixels.
const TILE_PX: [usize; 2] = [480, 288];
/// Height of the two lines under a tile's picture in pixels.
const CAPTION_PX: usize = 40;
/// Space around tiles in pixels.
const GAP_PX: usize = 12;
/// Tiles beside each other.
const COLUMNS: usize = 3;
/// Colour of the sheet.
const PAPER: u8 = 24;
/// Colour of letters.
const INK: u8 = 230;

/// Shows every preset on one picture, on one sheet.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium image sheet front.jpg presets.png")]
pub(super) struct Args {
    /// Picture to read (.jpg, .png).
    #[arg(value_hint = ValueHint::FilePath)]
    input: PathBuf,
    /// File to write (.png).
    #[arg(value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Size of the input where the network would decide it.
    #[arg(long, value_name = "WxH", default_value = "416x416", value_parser = super::size)]
    size: [usize; 2],
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or written.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let image = super::read(&args.input)?;
    let source_px = [image.width(), image.height()];
    let rows = (Preset::ALL.len() + 1).div_ceil(COLUMNS);
    let mut sheet = Sheet::new(rows).into_diagnostic()?;
    sheet
        .tile(
            0,
            &image,
            "the picture",
            &format!("{} x {}", source_px[0], source_px[1]),
        )
        .into_diagnostic()?;
    for (i, preset) in Preset::ALL.into_iter().enumerate() {
        let (picture, line) = match show(preset, &image, args.size) {
            Ok(shown) => shown,
            // Some sizes are refused; the sheet says so.
            Err(error) => {
                tracing::warn!(preset = preset.name(), %error, "left out");
                (None, "refused for a picture of this size".to_owned())
            }
        };
        sheet
            .tile(
                i + 1,
                picture.as_ref().unwrap_or(&sheet.empty()),
                preset.name(),
                &line,
            )
            .into_diagnostic()?;
    }
    super::write(&args.output, &encode_png(&sheet.image.view()).into_diagnostic()?)?;
    report::print(&format!(
        "{}: {} presets",
        args.output.display(),
        Preset::ALL.len()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// What a preset makes of a picture, and a line about it.
fn show(preset: Preset, image: &Image, size_px: [usize; 2]) -> Result<(Option<Image>, String), ImageError> {
    let source_px = [image.width(), image.height()];
    let size_px = match preset {
        // Of floats, this scale is known to the bit.
        Preset::OpencvLinearF32 => source_px.map(|side| side * 4 / 5),
        _ => size_px,
    };
    let options = super::with_size(preset, PresetOptions::DEPLOYED, size_px);
    let plan = PresetPlan::new(preset, source_px, &options)?;
    let form = plan.form();
    let mut input = vec![0_f32; form.bytes().div_ceil(size_of::<f32>())];
    let input = &mut bytemuck::cast_slice_mut(&mut input)[..form.bytes()];
    plan.apply(&image.view(), input, &mut [Workspace::default()])?;
    let picture = Picture::of(form, input)?;
    let range = picture
        .range
        .map(|[low, high]| format!(" {low:.2} to {high:.2}"))
        .unwrap_or_default();
    let [width, height] = form.size_px;
    let line = format!(
        "{width} x {height} {} {}{range}",
        form.samples.name(),
        form.layout.name()
    );
    Ok((Some(picture.image), line))
}

/// Tiles with captions.
struct Sheet {
    image: Image,
}

impl Sheet {
    fn new(rows: usize) -> Result<Self, ImageError> {
        let width = COLUMNS * (TILE_PX[0] + GAP_PX) + GAP_PX;
        let height = rows * (TILE_PX[1] + CAPTION_PX + GAP_PX) + GAP_PX;
        Ok(Self {
            image: Image::new(vec![PAPER; width * height * 3], width, height, PixelFormat::Rgb8)?,
        })
    }

    /// A tile with nothing in it.
    fn empty(&self) -> Image {
        let mut image = self.image.clone();
        image.data_mut().fill(PAPER);
        image
    }

    /// Puts a picture, as large as fits, and two lines under it.
    fn tile(&mut self, number: usize, picture: &Image, title: &str, line: &str) -> Result<(), ImageError> {
        let left = GAP_PX + number % COLUMNS * (TILE_PX[0] + GAP_PX);
        let top = GAP_PX + number / COLUMNS * (TILE_PX[1] + CAPTION_PX + GAP_PX);
        let size_px = [picture.width(), picture.height()];
        let scale = (TILE_PX[0] as f64 / size_px[0] as f64).min(TILE_PX[1] as f64 / size_px[1] as f64);
        let small_px = size_px.map(|side| ((side as f64 * scale).round() as usize).max(1));
        let plan = ResizePlan::area(size_px, small_px)?;
        let mut small = vec![0; small_px[0] * small_px[1] * picture.format().channels()];
        plan.apply(&picture.view(), &mut small, &mut Workspace::default())?;
        let small = Image::new(small, small_px[0], small_px[1], picture.format())?;
        let reversed = matches!(picture.format(), PixelFormat::Bgr8);
        for y in 0..small_px[1] {
            for (x, pixel) in small
                .view()
                .row(y)
                .chunks_exact(small.format().channels())
                .enumerate()
            {
                let rgb = match *pixel {
                    [b, g, r] if reversed => [r, g, b],
                    [r, g, b, ..] => [r, g, b],
                    [grey, ..] => [grey; 3],
                    [] => continue,
                };
                self.set(left + x, top + y, rgb);
            }
        }
        self.write(left, top + TILE_PX[1] + 6, title, 2);
        self.write(left, top + TILE_PX[1] + 26, line, 1);
        Ok(())
    }

    fn write(&mut self, left: usize, top: usize, text: &str, zoom: usize) {
        for (i, letter) in text.chars().enumerate() {
            let Some(rows) = font8x8::BASIC_FONTS.get(letter) else {
                continue;
            };
            for (y, bits) in rows.into_iter().enumerate() {
                for x in (0..8).filter(|x| bits >> x & 1 == 1) {
                    for (dx, dy) in (0..zoom * zoom).map(|n| (n % zoom, n / zoom)) {
                        self.set(left + (8 * i + x) * zoom + dx, top + y * zoom + dy, [INK; 3]);
                    }
                }
            }
        }
    }

    fn set(&mut self, x: usize, y: usize, rgb: [u8; 3]) {
        let (width, height) = (self.image.width(), self.image.height());
        if x < width && y < height {
            self.image.data_mut()[3 * (y * width + x)..][..3].copy_from_slice(&rgb);
        }
    }
}
