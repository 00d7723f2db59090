package objects

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"slices"

	"podd/internal/pod"
)

// contentOf is a hash of what a pod can see of an object: its data, and a Secret's
// type. The seed is random for each process, so that the hash of a Secret reveals
// nothing about it elsewhere.
func (s *Store) contentOf(o *pod.Object) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	add := func(text string) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(text)))
		_, _ = h.Write(n[:])
		_, _ = h.WriteString(text)
	}
	addAll := func(m map[string][]byte) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			add(key)
			add(string(m[key]))
		}
	}
	if o.Secret != nil {
		add(string(o.Secret.Type))
		addAll(o.Secret.Data)
		return h.Sum64()
	}
	for _, key := range slices.Sorted(maps.Keys(o.ConfigMap.Data)) {
		add(key)
		add(o.ConfigMap.Data[key])
	}
	add("") // no key: where the other map begins
	addAll(o.ConfigMap.BinaryData)
	return h.Sum64()
}

func immutable(o *pod.Object) bool {
	flag := (*bool)(nil)
	if o.Secret != nil {
		flag = o.Secret.Immutable
	} else {
		flag = o.ConfigMap.Immutable
	}
	return flag != nil && *flag
}
