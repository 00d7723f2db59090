package pod

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Contents are numbers of the contents of a pod's objects: another number is another
// content, and the number says nothing else about it.
type Contents struct {
	// Epoch names the key that the numbers were made with; those of two epochs
	// cannot be compared. Empty for numbers that no other process can compare.
	Epoch string
	Of    map[ObjectKey]uint64
}

// maxContents bounds the text of Contents, in bytes, as it is read back with each
// list of containers. It has room for a hundred objects with names as people give
// them.
const maxContents = 8 << 10

// Text is what ParseContents reads back: "EPOCH KIND/NAME=NUMBER …", with the
// objects sorted. It is empty where there is nothing that another process could
// compare, and where it would exceed 8 KiB.
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

// ParseContents reads a Text about the objects of a namespace. What it cannot read
// it leaves out.
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
