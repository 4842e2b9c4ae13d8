//! Writes the JSON Schemas of all messages into `schemas/v1/`, or into the directory given.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use eno_schemas::{
    CallbackAnswer, CallbackRequest, Command, DeadLetter, Delivery, DriverHello, Head, Message, Part,
    Preview, Report, Transition, Visit, schema_of,
};

fn main() -> io::Result<()> {
    let dir = env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("v1"), PathBuf::from);
    write::<Command>(&dir)?;
    write::<Head>(&dir)?;
    write::<Part>(&dir)?;
    write::<Report>(&dir)?;
    write::<Transition>(&dir)?;
    write::<DriverHello>(&dir)?;
    write::<Delivery>(&dir)?;
    write::<Preview>(&dir)?;
    write::<DeadLetter>(&dir)?;
    write::<CallbackRequest>(&dir)?;
    write::<CallbackAnswer>(&dir)?;
    write::<Visit>(&dir)
}

fn write<T: Message>(dir: &Path) -> io::Result<()> {
    let text = serde_json::to_string_pretty(&schema_of::<T>())?;
    fs::write(dir.join(format!("{}.json", T::NAME)), text + "\n")
}
