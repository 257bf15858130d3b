#![no_main]
//! See `outrider_tests::parsers::launch`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outrider_tests::parsers::launch(bytes));
