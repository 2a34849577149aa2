//! The `sensorium` command; everything lives in the library.

fn main() -> std::process::ExitCode {
    sensorium::cli::main()
}
