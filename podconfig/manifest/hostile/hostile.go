// Package hostile has texts that cost a reader of manifests as much as they can:
// for tests of what podd may take for an input. Nothing but tests imports it.
package hostile

import (
	"bytes"
	"fmt"
	"strings"
)

// Input is a kind of text.
type Input struct {
	Name string
	// Text is one of about that size, in bytes.
	Text func(size int) []byte
}

const (
	// document is the size of the documents that a large text is made of: just
	// below what podd reads of one.
	document = 3<<20 - 4<<10
	head     = "apiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\n"
	plain    = head + "spec: {containers: [{name: c, image: i}]}\n"
)

// Inputs are all of them.
func Inputs() []Input {
	inputs := append(pods(), values()...)
	inputs = append(inputs, lists()...)
	inputs = append(inputs, volumes()...)
	return append(inputs, texts()...)
}

// pods are about many of them.
func pods() []Input {
	return []Input{
		{"pods", rows(func(i int) string { return "---\n" + fmt.Sprintf(plain, i) })},
		{"broken pods", rows(func(i int) string { return "---\n" + fmt.Sprintf(head, i) + "spec: {x: [{}]}\n" })},
		{"pods with nothing", rows(func(int) string { return "---\nkind: Pod\n" })},
		{"documents", rows(func(int) string { return "---\na\n" })},
		{"empty documents", rows(func(int) string { return "---\n#\n" })},
		{"null documents", rows(func(int) string { return "---\n~\n" })},
		{"ConfigMaps", rows(func(i int) string {
			return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\n", i)
		})},
		{"Secrets", rows(func(i int) string {
			return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: s%d}\nstringData: {a: b}\n", i)
		})},
		{"JSON objects", rows(func(int) string { return "{}" })},
		{"JSON pods", rows(func(i int) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p%d"}}`, i)
		})},
		{"PodList of nothing", documents("apiVersion: v1\nkind: PodList\nitems: [", "{}", "]\n")},
		{"PodList of pods", func(size int) []byte {
			return rows(func(i int) string {
				if i == 0 {
					return "apiVersion: v1\nkind: PodList\nitems:\n"
				}
				return fmt.Sprintf("- {metadata: {name: p%d}, spec: {containers: [{name: c, image: i}]}}\n", i)
			})(min(size, document))
		}},
		{"heavy pods", rows(func(i int) string {
			return "---\n" + fmt.Sprintf(head, i) + "spec: {containers: [{name: c, image: i}" + numbered(400, ",{name: c%d, image: i}") + "]}\n"
		})},
		{"heavy broken pods", rows(func(i int) string {
			return "---\n" + fmt.Sprintf(head, i) + "spec: {containers: [{}" + strings.Repeat(",{}", 300) + "]}\n"
		})},
	}
}

// numbered repeats a pattern with a number in it.
func numbered(n int, pattern string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, pattern, i)
	}
	return b.String()
}

// values are small in the text and large elsewhere.
func values() []Input {
	anchors := func(size int) []byte { // each names the one before it twice
		var b bytes.Buffer
		b.WriteString("a0: &a0 [x]\n")
		for i := 1; b.Len() < min(size, document); i++ {
			fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d]\n", i, i, i-1, i-1)
		}
		return b.Bytes()
	}
	chain := func(size int) []byte { // each names the one before it once
		var b bytes.Buffer
		b.WriteString("a0: &a0 [x]\n")
		for i := 1; b.Len() < min(size, document); i++ {
			fmt.Fprintf(&b, "a%d: &a%d [*a%d]\n", i, i, i-1)
		}
		return b.Bytes()
	}
	long := func(size int) []byte {
		n := min(size, document)
		return []byte(fmt.Sprintf(head, 0) + "spec: {containers: [{name: c, image: i, args: [&a " + strings.Repeat("x", n*9/10) +
			strings.Repeat(", *a", n/40) + "]}]}\n")
	}
	merges := func(size int) []byte {
		n := min(size, document)
		return []byte(fmt.Sprintf(head, 0) + "spec: {nodeSelector: {<<: &m {" + numbered(n/40, "k%d: v, ") + "z: z}" + strings.Repeat(", <<: *m", n/20) + "}}\n")
	}
	nested := func(size int) []byte { // a merge of a merge of a merge
		var b bytes.Buffer
		b.WriteString("a0: &a0 {x: y}\n")
		for i := 1; b.Len() < min(size, document); i++ {
			fmt.Fprintf(&b, "a%d: &a%d {<<: *a%d, k%d: v}\n", i, i, i-1, i)
		}
		return b.Bytes()
	}
	return []Input{
		{"alias bomb", anchors}, {"alias chain", chain}, {"alias of a long text", long}, {"merges", merges}, {"merges of merges", nested},
		{"anchors", documents("a: [", "&a%d x", "]\n")},
		{"aliases", documents("a: [&a x, ", "*a", "]\n")},
	}
}

// lists are fields of a Pod that it may have many of.
func lists() []Input {
	var inputs []Input
	for _, in := range [][2]string{
		{"containers", "{}"}, {"containers", "{name: c%d, image: i}"}, {"initContainers", "{}"}, {"ephemeralContainers", "{}"},
		{"volumes", "{}"}, {"volumes", "{name: v%d}"}, {"tolerations", "{}"}, {"tolerations", "{key: k%d}"}, {"topologySpreadConstraints", "{}"},
		{"topologySpreadConstraints", "{maxSkew: 1, topologyKey: k%d, whenUnsatisfiable: DoNotSchedule}"},
		{"hostAliases", "{}"}, {"hostAliases", "{ip: 1.2.3.4, hostnames: [a%d]}"}, {"imagePullSecrets", "{}"}, {"readinessGates", "{}"},
		{"readinessGates", "{conditionType: a/c%d}"}, {"resourceClaims", "{name: c%d}"}, {"schedulingGates", "{name: g%d}"},
	} {
		inputs = append(inputs, Input{in[0] + ": " + in[1], documents(head0+"spec: {"+in[0]+": [", in[1], "]}\n")})
	}
	for _, in := range [][2]string{
		{"env", "{}"}, {"env", "{name: E%d, value: v}"}, {"env", "{name: E, value: v}"}, {"env", "{name: E, valueFrom: {configMapKeyRef: {name: a, key: b}}}"},
		{"env", "{name: E%d, valueFrom: {fieldRef: {fieldPath: x}}}"}, {"envFrom", "{configMapRef: {name: a}}"}, {"ports", "{}"}, {"ports", "{containerPort: %d}"},
		{"ports", "{containerPort: 1, hostPort: %d}"}, {"volumeMounts", "{}"}, {"volumeMounts", "{name: v%d, mountPath: /m%d}"}, {"volumeDevices", "{}"},
		{"args", "a"}, {"command", "''"}, {"resizePolicy", "{}"}, {"restartPolicyRules", "{}"}, {"bogus", "{}"},
	} {
		inputs = append(inputs, Input{"container's " + in[0] + ": " + in[1], documents(head0+"spec: {containers: [{name: c, image: i, "+in[0]+": [", in[1], "]}]}\n")})
	}
	for _, in := range [][3]string{
		{"labels", "metadata: {name: p, labels: {", "}}\n"}, {"annotations", "metadata: {name: p, annotations: {", "}}\n"},
		{"node selector", "spec: {nodeSelector: {", "}}\n"}, {"limits", "spec: {containers: [{name: c, image: i, resources: {limits: {", "}}}]}\n"},
		{"unknown fields", "spec: {", "}\n"}, {"unknown fields of a container", "spec: {containers: [{", "}]}\n"},
	} {
		for _, entry := range []string{"k%d: v", "K_%d!: [v]", "k: v", "%d: 1"} {
			inputs = append(inputs, Input{in[0] + ": " + entry, documents("apiVersion: v1\nkind: Pod\n"+in[1], entry, in[2])})
		}
	}
	for _, entry := range []string{"k%d: v", "K/%d!: v", "%d: 1", "k%d: [v]", "k%d: eHh4"} {
		inputs = append(inputs,
			Input{"a ConfigMap's data: " + entry, documents("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {", entry, "}\n")},
			Input{"a Secret's data: " + entry, documents("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {", entry, "}\n")})
	}
	return append(inputs,
		Input{"mounts of volumes that are not there", documents(head0+"spec: {volumes: [{name: v}], containers: [{name: c, image: i, volumeMounts: [", "{name: w%d, mountPath: /m%d}", "]}]}\n")},
		Input{"sysctls", documents(head0+"spec: {securityContext: {sysctls: [", "{name: a%d.b, value: c}", "]}}\n")},
		Input{"groups", documents(head0+"spec: {securityContext: {supplementalGroups: [", "%d", "]}}\n")},
		Input{"capabilities", documents(head0+"spec: {containers: [{name: c, image: i, securityContext: {capabilities: {add: [", "C%d", "]}}}]}\n")},
		Input{"affinity", documents(head0+"spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [", "{matchExpressions: [{}]}", "]}}}}\n")},
		Input{"JSON containers", documents(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[`, "{}", "]}}\n")},
		Input{"JSON numbers", documents(`{"a":[`, "1", "]}\n")},
		Input{"JSON fields", documents(`{`, `"":1`, "}\n")},
	)
}

// volumes are pods with many of what volumes have, and objects with much in them.
func volumes() []Input {
	const spec = head0 + "spec: {containers: [{name: c, image: i}], volumes: ["
	of := func(before, entry, after string) func(int) []byte { return documents(spec+before, entry, after+"]}\n") }
	object := func(kind, before, entry, after string) func(int) []byte {
		return documents("apiVersion: v1\nkind: "+kind+"\nmetadata: {name: o}\n"+before, entry, after+"\n")
	}
	return []Input{
		{"configMap volumes", of("", "{name: v%d, configMap: {name: c}}", "")},
		{"secret volumes", of("", "{name: v%d, secret: {secretName: s%d}}", "")},
		{"projected volumes", of("", "{name: v%d, projected: {sources: [{configMap: {name: c}}]}}", "")},
		{"projected sources", of("{name: v, projected: {sources: [", "{secret: {name: s%d}}", "]}}")},
		{"projected items", of("{name: v, projected: {sources: [{configMap: {name: c, items: [", "{key: k%d, path: p%d}", "]}}]}}")},
		{"items at one path", of("{name: v, projected: {sources: [{configMap: {name: c, items: [", "{key: k, path: p}", "]}}]}}")},
		{"sources of one path", of("{name: v, projected: {sources: [", "{configMap: {name: c, items: [{key: k, path: p}]}}", "]}}")},
		{"items of a configMap volume", of("{name: v, configMap: {name: c, items: [", "{key: k%d, path: p%d/x}", "]}}")},
		{"downwardAPI items", of("{name: v, downwardAPI: {items: [", "{path: p%d, fieldRef: {fieldPath: metadata.name}}", "]}}")},
		{"keys of a ConfigMap", object("ConfigMap", "data:\n  a: b\nbinaryData: {", "k%d: eHh4", "}")},
		{"keys in both halves of a ConfigMap", object("ConfigMap", "data: {k1: v, k2: v}\nbinaryData: {", "k%d: eHh4", "}")},
		{"keys of a Secret's texts", object("Secret", "stringData: {", "k%d: v", "}")},
		{"a List of ConfigMaps", documents("apiVersion: v1\nkind: List\nitems: [", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d}, data: {a: b}}", "]\n")},
		{"ConfigMaps of a mebibyte", rows(func(i int) string {
			return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {a: %s}\n", i, strings.Repeat("x", 1<<20-1))
		})},
		{"Secrets of a mebibyte", rows(func(i int) string {
			return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: s%d}\nstringData: {a: %s}\n", i, strings.Repeat("x", 1<<20-1))
		})},
	}
}

const head0 = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"

// texts are about the text itself.
func texts() []Input {
	within := func(before, body, after string) func(int) []byte {
		return documentsOf(func(size int) string { return before + strings.Repeat(body, size/len(body)) + after })
	}
	one := func(text func(size int) string) func(int) []byte {
		return func(size int) []byte { return []byte(text(size)) }
	}
	annotation := head0[:len(head0)-2] + ", annotations: {a: "
	return []Input{
		{"a long text", one(func(n int) string { return strings.Repeat("x", n) })},
		{"a long text in a document", within("a: ", "x", "\n")},
		{"a long annotation", within(annotation, "x", "}}\n")},
		{"a long quoted annotation", within(annotation+`"`, `\u00e9`, "\"}}\n")},
		{"a long block text", within("a: |\n", "  x\n", "")},
		{"a long field name", within("", "k", ": v\n")},
		{"a long unknown field", within(head0+"spec:\n  ", "k", ": v\n")},
		{"a long label", within("apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {", "k", ": v}}\n")},
		{"a long name", within("apiVersion: v1\nkind: Pod\nmetadata: {name: ", "n", "}\n")},
		{"a long kind", within("apiVersion: v1\nkind: ", "P", "\n")},
		{"a long value", within("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: ", "x", "}\n")},
		{"a long key", within("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {", "k:", ": x}\n")},
		{"long base64", within("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: ", "eHh4", "}\n")},
		{"copies of long base64", within("apiVersion: v1\nkind: SecretList\nitems:\n- {metadata: {name: a}, data: {a: &a "+strings.Repeat("eHh4", 1<<16)+"}}\n", "- {metadata: {name: s}, data: {a: *a}}\n", "")},
		{"a long number", within(head0+"spec: {terminationGracePeriodSeconds: ", "1", "}\n")},
		{"a long quantity", within(head0+"spec: {overhead: {cpu: ", "1", "}}\n")},
		{"a long image", within(head0+"spec: {containers: [{name: c, image: ", "i/", "}]}\n")},
		{"a long JSON text", one(func(n int) string { return `{"a":"` + strings.Repeat("x", n) + `"}` })},
		{"JSON escapes", documentsOf(func(n int) string { return `{"a":"` + strings.Repeat(`\u0041`, n/len(`\u0041`)) + `"}` })},
		{"plain lines", within("a:\n", "  b\n", "")},
		{"entries", within("a:\n", "- b\n", "")},
		{"fields", documentsOf(func(n int) string { return numbered(n/11, "k%d: v\n") })},
		{"one field again and again", within("", "k: v\n", "")},
		{"flow list", within("[", "a,", "]\n")},
		{"flow object", within("{", "a,", "}\n")},
		{"flow pairs", within("[", "a: b,", "]\n")},
		{"empty pairs", within("[", ": ,", "]\n")},
		{"question marks", within("[", "? ,", "]\n")},
		{"block question marks", within("", "?\n", "")},
		{"dashes", within("", "- ", "a\n")},
		{"dash lines", within("", "-\n", "")},
		{"open brackets", one(func(n int) string { return strings.Repeat("[", n) })},
		{"open braces", one(func(n int) string { return strings.Repeat("{", n) })},
		{"nested lists", one(func(n int) string { return strings.Repeat("[", n/2) + strings.Repeat("]", n/2) })},
		{"nested JSON", one(func(n int) string { return strings.Repeat(`{"a":`, n/6) + "1" + strings.Repeat("}", n/6) })},
		{"indented deeper and deeper", one(func(n int) string {
			var b strings.Builder
			for depth := 0; b.Len() < n; depth++ {
				b.WriteString(strings.Repeat(" ", depth%1500) + "a:\n")
			}
			return b.String()
		})},
		{"many nested lists", within("a: [", strings.Repeat("[", 900)+strings.Repeat("]", 900)+",", "]\n")},
		{"comments", within("a: b\n", "# c\n", "")},
		{"comments behind", within("", "a: b # c\n", "")},
		{"comments between", within("a:\n", "  # c\n  - b\n", "")},
		{"blank lines", within("a: b\n", "\n", "c: d\n")},
		{"CR only", one(func(n int) string { return strings.Repeat("---\ra\r", n/6) })},
		{"NEL only", one(func(n int) string { return strings.Repeat("a: b\u0085", n/6) })},
		{"byte order marks", one(func(n int) string { return strings.Repeat("\ufeff#\n", n/5) + "a: b\n" })},
		{"tabs", within("a:\n", "\t\n", "  b: c\n")},
		{"quotes", within("", `"`, "\n")},
		{"single quotes", within("a: ", "'", "\n")},
		{"a quote that never ends", within(`a: "`, "b\n ", "")},
		{"block text headers", within("", "a: |\n", "")},
		{"tags", within("[", "!a b,", "]\n")},
		{"asterisks", within("[&a b,", "*a,", "]\n")},
		{"colons", within("", "a:", "\n")},
		{"percents", within("", "%a\n", "")},
		{"digits and dashes", within("[", "1-,", "]\n")},
		{"not UTF-8 at the end", one(func(n int) string { return strings.Repeat("a: b\n", n/5) + "\xff" })},
		{"spaces", within("", " ", "a: b\n")},
		{"braces behind JSON", one(func(n int) string { return "{}" + strings.Repeat("}", n) })},
		{"brackets in JSON, never closed", one(func(n int) string { return `{"a":` + strings.Repeat("[1,", n/3) })},
	}
}

// rows is a text of a row of documents.
func rows(row func(i int) string) func(int) []byte {
	return func(size int) []byte {
		var b bytes.Buffer
		for i := 0; ; i++ {
			next := row(i)
			if b.Len()+len(next) > size {
				return b.Bytes()
			}
			b.WriteString(next)
		}
	}
}

// documents is a text of documents that are nearly as large as may be, each with
// one list of many entries; %d in an entry is its number.
func documents(before, entry, after string) func(int) []byte {
	return documentsOf(func(size int) string {
		var b strings.Builder
		b.WriteString(before)
		numbers := strings.Count(entry, "%d")
		for i := 0; b.Len() < size-len(after)-len(entry)-20; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			args := []any{i, i}
			if numbers > 0 {
				fmt.Fprintf(&b, entry, args[:numbers]...)
			} else {
				b.WriteString(entry)
			}
		}
		b.WriteString(after)
		return b.String()
	})
}

func documentsOf(text func(size int) string) func(int) []byte {
	return func(size int) []byte {
		var b bytes.Buffer
		const apart = 100 // less is no document
		for b.Len() < size-apart {
			if b.Len() > 0 {
				b.WriteString("\n---\n")
			}
			b.WriteString(text(min(size-b.Len(), document)))
		}
		return b.Bytes()[:min(b.Len(), size)]
	}
}
