#pragma once

// Sizes in bytes: the type, the way people write them and the way haul shows them.
// Everything here is pure and may be called from any thread.

#include <cstdint>
#include <string>
#include <string_view>

namespace haul {

using Bytes = std::uint64_t;

inline constexpr Bytes kKiB = Bytes{1} << 10;
inline constexpr Bytes kMiB = Bytes{1} << 20;
inline constexpr Bytes kGiB = Bytes{1} << 30;

// Reads "10GiB", "1.5GB", "512KiB", "80GB" or a plain count of bytes. Units are case-insensitive;
// KiB, MiB, GiB, TiB are powers of 2 and KB, MB, GB, TB powers of 10. As in Accelerate, a decimal
// unit that ends in a lower-case b ("1Gb") counts bits. Throws Error(kUsage) that names the text.
Bytes parse_bytes(std::string_view text);

// "413.18 MB": divided by 1024 until below 1024, at most two decimals, as Accelerate prints sizes.
std::string format_bytes(Bytes bytes);
// The same for a size that may have a fraction: "29.5 bytes", and "59.0 bytes" for a whole one.
std::string format_fractional_bytes(double bytes);

}  // namespace haul
