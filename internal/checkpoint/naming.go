package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

// Naming maps keys to the files of a Dir.
type Naming struct {
	// Name returns the name of a key's file.
	Name func(key string) string
	// Key is the inverse of Name; ok is false for a file without a key.
	Key func(name string) (key string, ok bool)
}

const suffix = ".json"

var (
	// Plain is the key with ".json" appended. The key must be a valid name of a file.
	Plain = Naming{
		Name: func(key string) string { return key + suffix },
		Key:  func(name string) (string, bool) { return strings.CutSuffix(name, suffix) },
	}
	// Escaped is Plain for any key: characters that a file's name cannot have are escaped
	// as in a URL's path.
	Escaped = Naming{
		Name: func(key string) string { return url.PathEscape(key) + suffix },
		Key: func(name string) (string, bool) {
			escaped, ok := strings.CutSuffix(name, suffix)
			key, err := url.PathUnescape(escaped)
			return key, ok && err == nil
		},
	}
)

// Hashed is a prefix and the first bytes of the key's SHA-256, in hexadecimal digits. A
// name does not reveal its key, so Key returns the name.
func Hashed(prefix string, bytes int) Naming {
	return Naming{
		Name: func(key string) string {
			sum := sha256.Sum256([]byte(key))
			return prefix + hex.EncodeToString(sum[:bytes])
		},
		Key: func(name string) (string, bool) {
			return name, strings.HasPrefix(name, prefix) && len(name) == len(prefix)+2*bytes
		},
	}
}
