#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| eno_driver_netconf::fuzz::xml(data));
