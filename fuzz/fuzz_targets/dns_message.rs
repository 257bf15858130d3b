#![no_main]
//! See `outrider_tests::parsers::dns_message`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outrider_tests::parsers::dns_message(bytes));
