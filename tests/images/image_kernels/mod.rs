//! The pre-processing kernels that deployed nodes run on the GPU, held bit for bit against plain
//! transcriptions that compute every value from its definition and share nothing with the library.

mod autoware_letterbox;
mod frames;
mod nearest_crop;
mod numpy;
mod triangle;
