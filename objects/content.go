package objects

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"slices"

	"podd/internal/pod"
)

// HashKeySize is the size of Config.HashKey, in bytes.
const HashKeySize = 32

// hashKeyOf returns the key of a Store and its epoch, which identifies the key without
// revealing it. Without a configured key, it is random and the epoch empty.
func hashKeyOf(cfg *Config) (key []byte, epoch string) {
	if len(cfg.HashKey) < HashKeySize {
		key = make([]byte, HashKeySize)
		_, _ = rand.Read(key) // it never fails
		return key, ""
	}
	const size = 8 // of the epoch, in bytes
	h := hmac.New(sha256.New, cfg.HashKey)
	_, _ = io.WriteString(h, "epoch")
	return cfg.HashKey, hex.EncodeToString(h.Sum(nil)[:size])
}

// contentHash returns a keyed hash of the part of an object that a pod can see: its data, a
// Secret's type, the spec and labels of a volume or claim. Without the key, the hash of a
// Secret reveals nothing about it.
func (s *Store) contentHash(o *pod.Object) uint64 {
	h := hmac.New(sha256.New, s.hashKey)
	add := func(text string) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(text)))
		_, _ = h.Write(n[:])
		_, _ = io.WriteString(h, text)
	}
	sum := func() uint64 { return binary.LittleEndian.Uint64(h.Sum(nil)) }
	addAll := func(m map[string][]byte) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			add(key)
			add(string(m[key]))
		}
	}
	switch {
	case o.Secret != nil:
		add(string(o.Secret.Type))
		addAll(o.Secret.Data)
		return sum()
	case o.Volume != nil:
		add(canonicalText(o.Volume.Labels, o.Volume.Spec))
		return sum()
	case o.Claim != nil:
		add(canonicalText(o.Claim.Labels, o.Claim.Spec))
		return sum()
	case o.Driver != nil:
		add(canonicalText(o.Driver.Spec))
		return sum()
	case o.Class != nil:
		add(o.Class.Handler)
		return sum()
	case o.Bundles != nil:
		add(canonicalText(o.Bundles))
		return sum()
	}
	for _, key := range slices.Sorted(maps.Keys(o.ConfigMap.Data)) {
		add(key)
		add(o.ConfigMap.Data[key])
	}
	add("") // not a valid key: separates the two maps
	addAll(o.ConfigMap.BinaryData)
	return sum()
}

// canonicalText serializes values: equal values have equal texts.
func canonicalText(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil { // never for API types
		panic(err)
	}
	return string(text)
}

func immutable(o *pod.Object) bool {
	flag := (*bool)(nil)
	switch {
	case o.Secret != nil:
		flag = o.Secret.Immutable
	case o.ConfigMap != nil:
		flag = o.ConfigMap.Immutable
	}
	return flag != nil && *flag
}
