#include "core/hub/hash.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include "core/hub/libcrypto.h"

namespace haul::core {
namespace {

template <typename Hash>
std::string hash_of(std::string_view text, std::size_t piece) {
  Hash hash;
  for (; text.size() > piece; text.remove_prefix(piece)) {
    hash.update(std::as_bytes(std::span(text.data(), piece)));
  }
  hash.update(std::as_bytes(std::span(text.data(), text.size())));
  return hash.finish();
}

std::string reference(const EVP_MD* kind, std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), digest, &size, kind, nullptr);
  std::string result;
  for (unsigned i = 0; i < size; ++i) result += fmt::format("{:02x}", digest[i]);
  return result;
}

TEST(Hash, GivesThePublishedValues) {
  EXPECT_EQ(hash_of<Sha256>("", 1),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of<Sha256>("abc", 3),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of<Sha1>("abc", 3), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(hash_of<Sha1>(std::string("blob 0\0", 7), 7),
            "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");  // git's empty file
}

TEST(Hash, LibcryptoIsFoundWhereItIsAndGivesTheSame) {
  const std::string text(1000, 'x');
  const auto fast = LibcryptoSha256::begin();
  ASSERT_NE(fast, nullptr);  // the tests link it
  fast->update(std::as_bytes(std::span(text)).first(77));
  fast->update(std::as_bytes(std::span(text)).subspan(77));
  EXPECT_EQ(fast->finish(), hash_of<Sha256>(text, 100));
}

TEST(Hash, AgreesWithOpensslAtEveryLengthAndInAnyPieces) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    for (const std::size_t piece :
         {std::size_t{1}, std::size_t{7}, std::size_t{64}, text.size() + 1}) {
      ASSERT_EQ(hash_of<Sha256>(text, piece), reference(EVP_sha256(), text)) << i;
      ASSERT_EQ(hash_of<Sha1>(text, piece), reference(EVP_sha1(), text)) << i;
    }
    text += static_cast<char>(i * 37);
  }
}

}  // namespace
}  // namespace haul::core
