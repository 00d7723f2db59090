package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
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
	fset  *token.FileSet
	src   []byte
	file  string
	next  *int
	found []mutant
	// opening and closing are edits at the beginning and at the end of nodes.
	opening, closing []edit
}

// rewrite returns the file with all its mutants in it; ids go on from *next.
func rewrite(file string, src []byte, next *int) ([]byte, []mutant, error) {
	r := &rewriter{fset: token.NewFileSet(), src: src, file: file, next: next}
	tree, err := parser.ParseFile(r.fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && !strings.HasPrefix(f.Name.Name, "String") {
			ast.Inspect(f.Body, r.visit)
		}
	}
	return r.apply(), r.found, nil
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
	id := r.mutant(n, what)
	from, to := r.offset(n.Pos()), r.offset(n.End())
	r.opening = append(r.opening, edit{at: from, text: fmt.Sprintf(before, id), other: to})
	r.closing = append(r.closing, edit{at: to, text: after, closes: true, other: from})
}

// binary makes a call of an operation.
func (r *rewriter) binary(e *ast.BinaryExpr, what, name, between, after string) {
	r.wrap(e, what, name+"(%d, ", after)
	r.opening = append(r.opening, edit{at: r.offset(e.OpPos), cut: len(e.Op.String()), text: between})
}

func (r *rewriter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.CONST
	case *ast.BlockStmt:
		r.statements(n.List)
	case *ast.CaseClause:
		r.statements(n.Body)
	case *ast.CommClause:
		r.statements(n.Body)
	case *ast.IfStmt:
		r.condition(n.Cond)
	case *ast.ForStmt:
		r.condition(n.Cond)
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					r.condition(e)
				}
			}
		}
	case *ast.ReturnStmt:
		for _, e := range n.Results {
			if id, ok := e.(*ast.Ident); ok && (id.Name == "true" || id.Name == "false") {
				r.wrap(e, "the other is returned", "mutateNot(%d, ", ")")
			}
		}
	case *ast.BinaryExpr:
		r.operation(n)
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 1 && (f.Name == "min" || f.Name == "max") {
			other := map[string]string{"min": "max", "max": "min"}[f.Name]
			id := r.mutant(n, other)
			name := strings.ToUpper(f.Name[:1]) + f.Name[1:]
			r.opening = append(r.opening, edit{at: r.offset(f.Pos()), cut: len(f.Name) + 1, other: r.offset(n.End()), text: fmt.Sprintf("mutate%s(%d, ", name, id)})
		}
	}
	return !isLog(n)
}

// condition turns what a condition rests on around; comparisons are operations.
func (r *rewriter) condition(e ast.Expr) {
	switch e := e.(type) {
	case nil:
	case *ast.ParenExpr:
		r.condition(e.X)
	case *ast.BinaryExpr:
		if e.Op == token.LAND || e.Op == token.LOR {
			r.condition(e.X)
			r.condition(e.Y)
		}
	default:
		r.wrap(e, "turned around", "mutateNot(%d, ", ")")
	}
}

func (r *rewriter) operation(e *ast.BinaryExpr) {
	switch e.Op {
	case token.LAND:
		r.binary(e, "|| for &&", "mutateAnd", ", func() bool { return (", ") })")
	case token.LOR:
		r.binary(e, "&& for ||", "mutateOr", ", func() bool { return (", ") })")
	case token.EQL, token.NEQ:
		r.wrap(e, "turned around", "mutateNot(%d, ", ")")
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		r.wrap(e, "turned around", "mutateNot(%d, ", ")")
		name := map[token.Token]string{token.LSS: "Less", token.LEQ: "LessOrSame", token.GTR: "Greater", token.GEQ: "GreaterOrSame"}[e.Op]
		r.binary(e, "the bound moved", "mutate"+name, ", ", ")")
	case token.ADD:
		// Of what is a number only a literal tells; strings have no minus.
		if isNumber(e.X) != isNumber(e.Y) {
			r.binary(e, "- for +", "mutateAdd", ", ", ")")
		}
	case token.SUB:
		r.binary(e, "+ for -", "mutateSub", ", ", ")")
	case token.MUL:
		r.binary(e, "+ for *", "mutateMul", ", ", ")")
	}
}

func isNumber(e ast.Expr) bool {
	l, ok := e.(*ast.BasicLit)
	return ok && (l.Kind == token.INT || l.Kind == token.FLOAT)
}

// statements leaves out what can be left out: what does something and ends
// nothing.
func (r *rewriter) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if isLog(s.X) || isPanic(s.X) || isLock(s.X) {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || len(s.Lhs) == 1 && isBlank(s.Lhs[0]) {
				continue
			}
		case *ast.BranchStmt:
			if s.Tok != token.BREAK && s.Tok != token.CONTINUE {
				continue
			}
		case *ast.IncDecStmt, *ast.SendStmt:
		default:
			continue
		}
		r.wrap(s, "left out", "if mutateOn(%d) { ", " }")
	}
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

func isPanic(e ast.Expr) bool {
	c, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	id, ok := c.Fun.(*ast.Ident)
	return ok && id.Name == "panic"
}

// isLock says that a node takes or gives back a lock: the race detector's job.
func isLock(e ast.Expr) bool {
	c, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := c.Fun.(*ast.SelectorExpr)
	return ok && (strings.HasSuffix(method.Sel.Name, "Lock") || strings.HasSuffix(method.Sel.Name, "Unlock"))
}

// isLog says that a node is a call of a logger: log.Info, s.log.Warn.
func isLog(n ast.Node) bool {
	c, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch of := method.X.(type) {
	case *ast.Ident:
		return of.Name == "log"
	case *ast.SelectorExpr:
		return of.Sel.Name == "log"
	}
	return false
}
