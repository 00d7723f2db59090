package pod

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ContentHashes are keyed hashes of the contents of a pod's objects. A different hash means
// different content; the hash reveals nothing else about it.
type ContentHashes struct {
	// Epoch names the key of the hashes. Hashes of two epochs cannot be compared. It is
	// empty for hashes that no other process can compare.
	Epoch    string
	ByObject map[ObjectKey]uint64
}

// maxContentHashes bounds the text of ContentHashes, in bytes, because it is read back with
// each list of containers. It has room for a hundred objects with typical names.
const maxContentHashes = 8 << 10

// Text returns the text that ParseContentHashes reads back: "EPOCH KIND/NAME=HASH …", with the
// objects sorted. It is empty if another process could not compare anything, and if it
// would exceed 8 KiB.
func (c ContentHashes) Text() string {
	if c.Epoch == "" || len(c.ByObject) == 0 {
		return ""
	}
	words := make([]string, 0, len(c.ByObject))
	for key, hash := range maps.All(c.ByObject) {
		words = append(words, key.Kind+"/"+key.Name+"="+strconv.FormatUint(hash, 16))
	}
	slices.Sort(words)
	text := c.Epoch + " " + strings.Join(words, " ")
	if len(text) > maxContentHashes {
		return ""
	}
	return text
}

// ParseContentHashes reads a Text about the objects of a namespace. It leaves out what it cannot
// read.
func ParseContentHashes(namespace, text string) ContentHashes {
	epoch, rest, _ := strings.Cut(text, " ")
	c := ContentHashes{Epoch: epoch}
	for word := range strings.FieldsSeq(rest) {
		name, hex, _ := strings.Cut(word, "=")
		kind, name, _ := strings.Cut(name, "/")
		hash, err := strconv.ParseUint(hex, 16, 64)
		if err != nil || kind != KindConfigMap && kind != KindSecret || name == "" {
			continue
		}
		if c.ByObject == nil {
			c.ByObject = make(map[ObjectKey]uint64)
		}
		c.ByObject[ObjectKey{Kind: kind, Namespace: namespace, Name: name}] = hash
	}
	return c
}
