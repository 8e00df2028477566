// Oracles under the sanitizers.
#pragma once

/// In front of a textbook program: one thread has all it touches, and ThreadSanitizer would take most
/// of a test's time to look at it. Its loops go over pointers, since what it calls is looked at.
#define TERRACE_ORACLE __attribute__((no_sanitize("thread")))
