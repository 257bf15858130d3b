#![no_main]
//! See `outrider_tests::parsers::query`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outrider_tests::parsers::query(bytes));
