package manifest

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"podd/internal/pod"
	"podd/internal/strictyaml"
)

// uidScheme is hashed first, so that the UIDs of another scheme can never equal those
// of this one. It must not change: every running static pod of every node is
// identified by its UID, and a new one restarts it (kubernetes/kubernetes#67537).
const uidScheme = "podd static pod 1\n"

// identity is the UID of a static pod: the first 128 bits of SHA-256, as 32
// hexadecimal digits (the shape of the kubelet's), over the node's name, the
// source, the origin's path or URL, the pod's namespace and name, and what the
// manifest says, before any defaulting: a new field or default of a later
// release changes no UID. Comments, the order of fields, quoting style, the way
// numbers are written, aliases, fields that are null, and whether it is YAML or
// JSON do not count. An explicit metadata.uid is content like any other.
func identity(opt Options, namespace, name string, content *yaml.Node) pod.UID {
	h := sha256.New()
	w := bufio.NewWriter(h)
	w.WriteString(uidScheme)
	for _, s := range []string{opt.NodeName, string(opt.Source), opt.Origin, namespace, name} {
		w.WriteString(strconv.Quote(s))
		w.WriteByte('\n')
	}
	canonical(w, content)
	w.Flush()
	const bytes = 16
	return pod.UID(hex.EncodeToString(h.Sum(nil)[:bytes]))
}

// canonical writes a node as JSON with sorted keys and without null fields. It
// deliberately relies on nothing but the YAML core schema: the UID must not depend on
// the API's types or a JSON encoder's habits.
func canonical(w *bufio.Writer, n *yaml.Node) {
	n = strictyaml.Resolve(n)
	switch n.Kind {
	case yaml.MappingNode:
		fields := strictyaml.Pairs(n, nil)
		slices.SortFunc(fields, func(a, b strictyaml.Pair) int { return strings.Compare(a.Name, b.Name) })
		w.WriteByte('{')
		first := true
		for _, f := range fields {
			if v := strictyaml.Resolve(f.Value); v.Kind == yaml.ScalarNode && v.ShortTag() == "!!null" {
				continue
			}
			if !first {
				w.WriteByte(',')
			}
			first = false
			w.WriteString(strconv.Quote(f.Name))
			w.WriteByte(':')
			canonical(w, f.Value)
		}
		w.WriteByte('}')
	case yaml.SequenceNode:
		w.WriteByte('[')
		for i, c := range n.Content {
			if i > 0 {
				w.WriteByte(',')
			}
			canonical(w, c)
		}
		w.WriteByte(']')
	default:
		w.WriteString(canonicalScalar(n))
	}
}

func canonicalScalar(n *yaml.Node) string {
	switch n.ShortTag() {
	case "!!null":
		return "null"
	case "!!bool":
		return strings.ToLower(n.Value)
	case "!!int":
		if i, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64); err == nil {
			return strconv.FormatInt(i, 10)
		}
		return n.Value
	case "!!float":
		if f, err := strconv.ParseFloat(n.Value, 64); err == nil {
			return strconv.FormatFloat(f, 'g', -1, 64)
		}
		return n.Value
	}
	return strconv.Quote(n.Value)
}
