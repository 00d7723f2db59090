package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// mutant is one change.
type mutant struct {
	id   int
	file string // relative to the module
	line int
	what string // "n > 0: turned around"
}

func (m mutant) String() string { return fmt.Sprintf("%s:%d: %s", m.file, m.line, m.what) }

// edit puts text at an offset, in place of the next cut bytes.
type edit struct {
	at, cut int
	text    string
	// closes says that it stands at the end of its node; other is that node's
	// other end. Where edits meet, nodes close from the inside and open from the
	// outside.
	closes bool
	other  int
}

func compareEdits(a, b edit) int {
	switch {
	case a.at != b.at:
		return a.at - b.at
	case a.closes != b.closes && a.closes:
		return -1
	case a.closes != b.closes:
		return 1
	}
	return b.other - a.other
}

// rewriter collects the changes of one file.
type rewriter struct {
	*code
	src   []byte
	file  string
	next  *int
	found []mutant
	// opening and closing are edits at the beginning and at the end of nodes.
	opening, closing []edit
}

// rewrite returns a file of the package with all its mutants in it; ids go on from *next.
func (p *code) rewrite(file string, src []byte, next *int) ([]byte, []mutant) {
	r := &rewriter{code: p, src: src, file: file, next: next}
	for _, d := range p.trees[file].Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && !strings.HasPrefix(f.Name.Name, "String") {
			r.errors(f.Type, f.Body)
			ast.Inspect(f.Body, r.visit)
		}
	}
	return r.apply(), r.found
}

func (r *rewriter) apply() []byte {
	slices.Reverse(r.closing) // of two around one node, the first is the outer
	all := slices.Concat(r.closing, r.opening)
	slices.SortStableFunc(all, compareEdits)
	var out bytes.Buffer
	at := 0
	for _, e := range all {
		out.Write(r.src[at:e.at])
		out.WriteString(e.text)
		at = e.at + e.cut
	}
	out.Write(r.src[at:])
	return out.Bytes()
}

func (r *rewriter) offset(p token.Pos) int { return r.fset.Position(p).Offset }

func (r *rewriter) text(n ast.Node) string {
	return strings.Join(strings.Fields(string(r.src[r.offset(n.Pos()):r.offset(n.End())])), " ")
}

func (r *rewriter) mutant(n ast.Node, what string) int {
	*r.next++
	text := r.text(n)
	if len(text) > 90 {
		text = text[:87] + "..."
	}
	r.found = append(r.found, mutant{*r.next, r.file, r.fset.Position(n.Pos()).Line, text + ": " + what})
	return *r.next
}

// wrap puts text around a node; the mutant's number goes where text has %d.
func (r *rewriter) wrap(n ast.Node, what, before, after string) {
	r.around(n, fmt.Sprintf(before, r.mutant(n, what)), after)
}

func (r *rewriter) around(n ast.Node, before, after string) {
	from, to := r.offset(n.Pos()), r.offset(n.End())
	r.opening = append(r.opening, edit{at: from, text: before, other: to})
	r.closing = append(r.closing, edit{at: to, text: after, closes: true, other: from})
}
