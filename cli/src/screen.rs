//! Standard output whose reader may end before the program does, such as `head`.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write as _, stdout};

/// Prints a line, as `println!` does. The program ends if nobody reads it any more.
#[macro_export]
macro_rules! outln {
    () => { $crate::outln!("") };
    ($($text:tt)*) => { $crate::screen::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints text, as `print!` does. The program ends without an error if nobody reads it any more, and with one if the
/// text can't be written.
pub fn write(text: Arguments<'_>) {
    if let Err(error) = stdout().lock().write_fmt(text) {
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        eprintln!("eno: writing to standard output: {error}");
        std::process::exit(1);
    }
}
