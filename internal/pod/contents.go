package pod

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Contents are numbers for the contents of a pod's objects. A different number means
// different content; the number reveals nothing else about it.
type Contents struct {
	// Epoch names the key that made the numbers. Numbers of two epochs cannot be compared.
	// It is empty for numbers that no other process can compare.
	Epoch string
	Of    map[ObjectKey]uint64
}

// maxContents bounds the text of Contents, in bytes, because it is read back with each list
// of containers. It has room for a hundred objects with typical names.
const maxContents = 8 << 10

// Text returns the text that ParseContents reads back: "EPOCH KIND/NAME=NUMBER …", with the
// objects sorted. It is empty if another process could not compare anything, and if it
// would exceed 8 KiB.
func (c Contents) Text() string {
	if c.Epoch == "" || len(c.Of) == 0 {
		return ""
	}
	words := make([]string, 0, len(c.Of))
	for key, number := range maps.All(c.Of) {
		words = append(words, key.Kind+"/"+key.Name+"="+strconv.FormatUint(number, 16))
	}
	slices.Sort(words)
	text := c.Epoch + " " + strings.Join(words, " ")
	if len(text) > maxContents {
		return ""
	}
	return text
}

// ParseContents reads a Text about the objects of a namespace. It leaves out what it cannot
// read.
func ParseContents(namespace, text string) Contents {
	epoch, rest, _ := strings.Cut(text, " ")
	c := Contents{Epoch: epoch}
	for word := range strings.FieldsSeq(rest) {
		name, hex, _ := strings.Cut(word, "=")
		kind, name, _ := strings.Cut(name, "/")
		number, err := strconv.ParseUint(hex, 16, 64)
		if err != nil || kind != KindConfigMap && kind != KindSecret || name == "" {
			continue
		}
		if c.Of == nil {
			c.Of = make(map[ObjectKey]uint64)
		}
		c.Of[ObjectKey{Kind: kind, Namespace: namespace, Name: name}] = number
	}
	return c
}
