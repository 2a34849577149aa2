//! Where several tensors lie in one packed buffer, so that one read brings all of them to the host.
//!
//! [`PackLayout::plan`] decides it from names, shapes and types alone; the device's half writes a buffer of that
//! layout, and [`PackLayout::unpack`] gives the parts back as views. Everything counts in elements of the packed
//! type unless it says bytes.
//!
//! # The rules
//!
//! `round(x, m)` is `x` rounded up to a multiple of `m`. A tensor of shape `[.., c]` has `n` rows of `c` elements.
//!
//! | packed buffer | when | shape | each tensor |
//! |---|---|---|---|
//! | one row | no row length is asked for, and the sum of all `round(n c, align)` is at most [`SINGLE_ROW_MAX_ELEMS`] | `[1, 1, 1, total]` | flattened, takes `round(n c, align)` |
//! | rows of `R` | otherwise; `R` is what is asked for, else [`PACK_ROW_ELEMS`] | `[1, 1, rows, R]` | starts on a row, takes the whole rows of the next table |
//!
//! What a tensor takes in rows of `R`; the first line that fits holds:
//!
//! | form | when | takes |
//! |---|---|---|
//! | flattened | at most [`FLATTENED_MAX_BYTES`], or a single row (`n = 1`) | `round(n c, R)` |
//! | refused | its rows are wider than [`PAGE_MAX_BYTES`] | |
//! | contiguous | what it takes is not more than `n c / 8` above the best of the two below | `c round(n, R / gcd(c, R))` |
//! | flattened | `round(n c, R)` is at most [`PAGE_MAX_BYTES`] | `round(n c, R)` |
//! | pitched | otherwise | the least `p round(n, R / gcd(p, R))` of all pitches `p` |
//!
//! Pitches are `round(c, q)` for `q = R` and for every power of two `q` that divides `R`. A pitched tensor keeps
//! each row of `c` elements in `p` places; in the other forms the elements follow each other. All places behind and
//! between are zero.
//!
//! Worked out for fp32 and rows of 1024:
//!
//! | tensor | form | takes |
//! |---|---|---|
//! | `[1, 1, 2, 20001]`, 160 kB | pitched by `round(20001, 1024)` = 20480; contiguous would take `1024 * 20001`, 82 MB | 2 * 20480 = 40 rows |
//! | `[1, 1, 1100, 33]`, 145 kB | pitched by `round(33, 4)` = 36 in 1280 rows; contiguous would take 66 rows of 1024, flattened a page of 147 kB | 45 rows |
//! | `[1, 14400, 13]`, 749 kB | contiguous, 960 rows of zeros behind: 6.7 % | 195 rows |
//! | `[240, 240]`, 230 kB | contiguous, 16 rows of zeros behind | 60 rows |
//! | `[1, 1, 17, 1000]`, 68 kB | flattened; contiguous would take 125 rows | 17 rows |
//! | `[100]` | flattened | 1 row |
//! | `[1, 1, 1, 100000]` | flattened: a single row may be of any width | 98 rows |
//! | `[1, 1, 4, 40000]` | refused: 160 kB a row | |
//!
//! With rows of 1024 and fp32 no tensor takes more than 1.4 times its own size and one row; longer rows can cost
//! more.
//!
//! # What the rules leave open
//!
//! The rules were first written for an accelerator whose row-major buffers move in pages of one row, and they are
//! kept to the letter so that layouts agree. Where the letter leaves a choice:
//!
//! - Bytes are counted after the conversion to the packed type: that is what is laid out.
//! - `n` is the product of all dimensions but the last. A tensor without dimensions is one row of one element.
//! - Between pitches that take equally much the narrowest is taken. Pitches wider than a page are none.
//! - A single row is flattened whatever its width: pitched, it would take the same places. A device that moves
//!   pages cuts a wide one into chunks.
//! - Rows of `R` wider than a page are refused as those of a tensor are.
//! - Tensors without elements, no tensors at all, and names that come twice are refused.
//!
//! # What is exact
//!
//! Packing converts, to nearest even where the packed type is narrower. Packed as fp32, bf16, fp16 and fp32 arrive
//! unchanged, and so does every integer below 2^24 in magnitude. Types of 8 and 16 bits are below; values of wider
//! integers cannot be told from the type, so whoever packs indices as fp32 answers for their range
//! ([`PackEntry::always_exact`] is `false`).

use ndarray::{ArrayViewD, IxDyn, ShapeBuilder};

use super::{DType, Shape, TensorSpec, View};

/// Most elements of a packed buffer of one row: 512 KiB of fp32.
pub const SINGLE_ROW_MAX_ELEMS: usize = 131_072;

/// Elements of one row of a larger packed buffer.
pub const PACK_ROW_ELEMS: usize = 1024;

/// Largest tensor that is always flattened, in bytes.
pub const FLATTENED_MAX_BYTES: usize = 64 << 10;

/// Widest row of a tensor of several rows, in bytes.
pub const PAGE_MAX_BYTES: usize = 128 << 10;

/// What a row length must be a multiple of.
const ROW_ELEMS_STEP: usize = 32;

/// How tensors are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PackOptions {
    /// Element type of the packed buffer, [`DType::F32`] or [`DType::Bf16`].
    pub dtype: DType,
    /// What each tensor is padded to a multiple of in a buffer of one row, in elements.
    pub align: usize,
    /// Elements of one row, a multiple of 32; `None` packs into one row what fits.
    pub row_elems: Option<usize>,
}

impl Default for PackOptions {
    fn default() -> Self {
        Self {
            dtype: DType::F32,
            align: 32,
            row_elems: None,
        }
    }
}

/// What cannot be packed or unpacked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// Nothing to pack.
    #[error("there is no tensor to pack")]
    NoTensors,
    /// A tensor of no elements.
    #[error("{name} has shape {shape}: a tensor without elements cannot be packed")]
    Empty {
        /// The tensor.
        name: String,
        /// Its shape.
        shape: Shape,
    },
    /// Two tensors of one name.
    #[error("two tensors are called {name}: they could not be told apart when unpacked")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A packed type that is none of the two.
    #[error("tensors are packed as float32 or bfloat16, not as {dtype}")]
    DType {
        /// The refused type.
        dtype: DType,
    },
    /// An alignment of nothing.
    #[error("align is 0; it must be at least 1 element")]
    Align,
    /// A row length that is no positive multiple of 32.
    #[error("row_elems is {row_elems}; it must be a positive multiple of {ROW_ELEMS_STEP}")]
    RowElems {
        /// The refused length.
        row_elems: usize,
    },
    /// A row length that makes rows wider than a page.
    #[error(
        "row_elems is {row_elems}: rows of {row_bytes} bytes are wider than the supported {PAGE_MAX_BYTES}; ask for \
         shorter ones"
    )]
    WidePackedRows {
        /// The refused length.
        row_elems: usize,
        /// Bytes of one row.
        row_bytes: u128,
    },
    /// Several rows, each wider than a page.
    #[error(
        "{name} of shape {shape} has rows of {row_bytes} bytes, wider than the supported {PAGE_MAX_BYTES}: give it a \
         narrower last dimension"
    )]
    WideRows {
        /// The tensor.
        name: String,
        /// Its shape.
        shape: Shape,
        /// Bytes of one row in the packed type.
        row_bytes: u128,
    },
    /// More elements than can be addressed.
    #[error("the tensors take {elements} elements together, more than can be addressed")]
    TooLarge {
        /// What they would take.
        elements: u128,
    },
    /// A packed buffer of another size.
    #[error("a packed buffer of {expected} elements is needed, {found} were given")]
    Length {
        /// What the layout, or one entry of it, reaches.
        expected: usize,
        /// What was given.
        found: usize,
    },
}

/// One tensor in a packed buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackEntry {
    /// Name of the tensor.
    pub name: String,
    /// Place of its first element.
    pub offset: usize,
    /// Number of its elements.
    pub numel: usize,
    /// Its dimensions.
    pub shape: Shape,
    /// Places from one row to the next, where rows are padded; 0 where the elements follow each other.
    pub pitch: usize,
    /// Element type of the tensor before it was packed.
    pub dtype: DType,
}

impl PackEntry {
    /// The entry's window onto the packed buffer.
    #[must_use]
    pub fn window(&self) -> View {
        let mut view = View::contiguous(self.shape);
        view.offset = self.offset;
        if let (1.., Some((&width, outer))) = (self.pitch, self.shape.split_last()) {
            // Every stride but the last is a whole number of rows.
            for stride in &mut view.strides[..outer.len()] {
                *stride = *stride / width.max(1) as isize * self.pitch as isize;
            }
        }
        view
    }

    /// The tensor in a packed buffer, which may go on behind it. Nothing is copied.
    ///
    /// # Errors
    /// [`PackError::Length`] for a buffer that ends before the tensor does.
    pub fn view<'a, T>(&self, flat: &'a [T]) -> Result<ArrayViewD<'a, T>, PackError> {
        let window = self.window();
        let end = window.bounds().map_or(self.offset, |(_, last)| last as usize + 1);
        let outside = || PackError::Length {
            expected: end,
            found: flat.len(),
        };
        let places = flat.get(self.offset..end).ok_or_else(outside)?;
        let strides: Vec<usize> = window.steps().iter().map(|&step| step as usize).collect();
        ArrayViewD::from_shape(IxDyn(&self.shape).strides(IxDyn(&strides)), places).map_err(|_| outside())
    }

    /// Whether every value of the tensor's type is a value of `packed`, so that packing changed none.
    #[must_use]
    pub fn always_exact(&self, packed: DType) -> bool {
        let significant_bits = if packed == DType::F32 { 24 } else { 8 };
        match self.dtype {
            same if same == packed => true,
            DType::F16 => packed == DType::F32,
            DType::Bf16 => packed == DType::F32,
            DType::F32 => false,
            // Floats of 8 bits, and integers, that have no more bits than the packed type's fraction.
            narrow => narrow.size_bytes() * 8 <= significant_bits,
        }
    }
}

/// Where several tensors lie in one row-major buffer `[1, 1, rows, row_elems]`. Made by [`PackLayout::plan`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackLayout {
    /// The tensors, in the order in which they lie.
    pub entries: Vec<PackEntry>,
    /// Elements of the buffer, zeros included.
    pub total: usize,
    /// Rows of the buffer.
    pub rows: usize,
    /// Elements of one row.
    pub row_elems: usize,
    /// Shape, type and layout of the buffer.
    pub spec: TensorSpec,
}

impl PackLayout {
    /// Lays tensors out by the rules of this [module](self).
    ///
    /// # Errors
    /// [`PackError`], naming the tensor.
    pub fn plan(tensors: &[(&str, Shape, DType)], options: &PackOptions) -> Result<Self, PackError> {
        check(tensors, options)?;
        let aligned: u128 = tensors
            .iter()
            .map(|(_, shape, _)| (shape.elements() as u128).next_multiple_of(options.align as u128))
            .sum();
        let single_row = options.row_elems.is_none() && aligned <= SINGLE_ROW_MAX_ELEMS as u128;
        let row_elems = options.row_elems.unwrap_or(PACK_ROW_ELEMS);
        let mut end = 0_u128;
        let mut entries = Vec::with_capacity(tensors.len());
        for &(name, shape, dtype) in tensors {
            let segment = if single_row {
                Segment {
                    elements: (shape.elements() as u128).next_multiple_of(options.align as u128),
                    pitch: 0,
                }
            } else {
                Segment::in_rows(name, shape, row_elems, options.dtype)?
            };
            entries.push(PackEntry {
                name: name.into(),
                offset: to_usize(end)?,
                numel: shape.elements(),
                shape,
                pitch: to_usize(segment.pitch)?,
                dtype,
            });
            end += segment.elements;
        }
        let total = to_usize(end)?;
        let (rows, row_elems) = if single_row {
            (1, total)
        } else {
            (total / row_elems, row_elems)
        };
        let spec = TensorSpec::new(&[1, 1, rows, row_elems], options.dtype)
            .map_err(|_| PackError::TooLarge { elements: end })?;
        Ok(Self {
            entries,
            total,
            rows,
            row_elems,
            spec,
        })
    }

    /// Element type of the packed buffer.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.spec.dtype
    }

    /// An entry by name.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&PackEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// The tensors of a packed buffer, in the order in which they were packed. Nothing is copied; a pitched tensor is a
    /// strided view.
    ///
    /// # Errors
    /// [`PackError::Length`] for a buffer of another size.
    pub fn unpack<'a, T>(&self, flat: &'a [T]) -> Result<Vec<(&str, ArrayViewD<'a, T>)>, PackError> {
        if flat.len() != self.total {
            return Err(PackError::Length {
                expected: self.total,
                found: flat.len(),
            });
        }
        self.entries
            .iter()
            .map(|entry| Ok((entry.name.as_str(), entry.view(flat)?)))
            .collect()
    }

    /// Windows onto the places that belong to no element, and are zero: between the rows of pitched tensors, and
    /// behind tensors.
    #[must_use]
    pub fn padding(&self) -> Vec<View> {
        let ends = self.entries.iter().skip(1).map(|entry| entry.offset);
        let mut windows = Vec::new();
        for (entry, end) in self.entries.iter().zip(ends.chain([self.total])) {
            let width = entry.shape.last().copied().unwrap_or(1);
            let filled = if entry.pitch > width {
                let rows = entry.numel / width.max(1);
                windows.extend(window(
                    &[rows, entry.pitch - width],
                    entry.pitch,
                    entry.offset + width,
                ));
                rows * entry.pitch
            } else {
                entry.numel
            };
            let behind = end - entry.offset - filled;
            if behind > 0 {
                windows.extend(window(&[1, behind], behind, entry.offset + filled));
            }
        }
        windows
    }
}

/// Rows at a pitch; `None` only for shapes that no planned layout has.
fn window(dims: &[usize; 2], pitch: usize, offset: usize) -> Option<View> {
    let mut view = View::contiguous(Shape::new(dims).ok()?);
    view.strides[0] = pitch as isize;
    view.offset = offset;
    Some(view)
}

/// What one tensor takes.
struct Segment {
    elements: u128,
    /// 0 where the elements follow each other.
    pitch: u128,
}

impl Segment {
    /// The second table of the module.
    fn in_rows(name: &str, shape: Shape, row_elems: usize, dtype: DType) -> Result<Self, PackError> {
        let bytes = |elements: u128| elements * dtype.size_bytes() as u128;
        let row = row_elems as u128;
        let numel = shape.elements() as u128;
        let width = shape.last().map_or(1, |&c| c as u128);
        let rows = numel / width;
        let flattened = Self {
            elements: numel.next_multiple_of(row),
            pitch: 0,
        };
        if bytes(numel) <= FLATTENED_MAX_BYTES as u128 || rows == 1 {
            return Ok(flattened);
        }
        if bytes(width) > PAGE_MAX_BYTES as u128 {
            return Err(PackError::WideRows {
                name: name.into(),
                shape,
                row_bytes: bytes(width),
            });
        }
        let whole_rows = |pitch: u128| pitch * rows.next_multiple_of(row / gcd(pitch, row));
        let contiguous = Self {
            elements: whole_rows(width),
            pitch: 0,
        };
        let best = if bytes(flattened.elements) <= PAGE_MAX_BYTES as u128 {
            flattened
        } else {
            let powers = (0..=row.trailing_zeros()).map(|exponent| 1 << exponent);
            powers
                .chain([row])
                .map(|multiple| width.next_multiple_of(multiple))
                .filter(|&pitch| bytes(pitch) <= PAGE_MAX_BYTES as u128)
                .map(|pitch| Self {
                    elements: whole_rows(pitch),
                    pitch,
                })
                .min_by_key(|segment| (segment.elements, segment.pitch))
                .unwrap_or(flattened)
        };
        let wasted = contiguous.elements.saturating_sub(best.elements);
        Ok(if 8 * wasted > numel { best } else { contiguous })
    }
}

fn check(tensors: &[(&str, Shape, DType)], options: &PackOptions) -> Result<(), PackError> {
    if !matches!(options.dtype, DType::F32 | DType::Bf16) {
        return Err(PackError::DType { dtype: options.dtype });
    }
    if options.align == 0 {
        return Err(PackError::Align);
    }
    if let Some(row_elems) = options.row_elems {
        if row_elems == 0 || !row_elems.is_multiple_of(ROW_ELEMS_STEP) {
            return Err(PackError::RowElems { row_elems });
        }
        let row_bytes = row_elems as u128 * options.dtype.size_bytes() as u128;
        if row_bytes > PAGE_MAX_BYTES as u128 {
            return Err(PackError::WidePackedRows { row_elems, row_bytes });
        }
    }
    if tensors.is_empty() {
        return Err(PackError::NoTensors);
    }
    for (index, (name, shape, _)) in tensors.iter().enumerate() {
        if shape.elements() == 0 {
            return Err(PackError::Empty {
                name: (*name).into(),
                shape: *shape,
            });
        }
        if tensors[..index].iter().any(|(earlier, ..)| earlier == name) {
            return Err(PackError::Duplicate { name: (*name).into() });
        }
    }
    Ok(())
}

fn to_usize(elements: u128) -> Result<usize, PackError> {
    usize::try_from(elements).map_err(|_| PackError::TooLarge { elements })
}

const fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
