package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// visit makes the changes that one node allows.
func (r *rewriter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.CONST
	case *ast.FuncLit:
		r.errors(n.Type, n.Body)
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
			if isName(e, "true") || isName(e, "false") {
				r.wrap(e, "the other is returned", "mutateNot(%d, ", ")")
			}
		}
	case *ast.BinaryExpr:
		r.operation(n)
	case *ast.KeyValueExpr:
		if r.isDuration(n.Value) {
			r.wrap(n.Value, "longer", "mutateLonger(%d, ", ")")
		}
	case *ast.CallExpr:
		if !r.isLog(n) {
			r.call(n)
		}
	}
	return !r.isLog(n)
}

// binary makes a call of an operation.
func (r *rewriter) binary(e *ast.BinaryExpr, what, name, between, after string) {
	r.wrap(e, what, name+"(%d, ", after)
	r.opening = append(r.opening, edit{at: r.offset(e.OpPos), cut: len(e.Op.String()), text: between})
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
	}
	// What is constant may stand where a call may not, unless it is a time.
	if !r.isNumber(e) || r.isConstant(e) && !r.isDuration(e) {
		return
	}
	switch e.Op {
	case token.ADD:
		r.binary(e, "- for +", "mutateAdd", ", ", ")")
	case token.SUB:
		r.binary(e, "+ for -", "mutateSub", ", ", ")")
	case token.MUL:
		r.binary(e, "+ for *", "mutateMul", ", ", ")")
	}
}

// call changes what a function is given: min for max, a longer time, and two neighbours of
// one type in each other's place.
func (r *rewriter) call(c *ast.CallExpr) {
	f, isIdent := c.Fun.(*ast.Ident)
	switch fun := r.info.Types[c.Fun]; {
	case fun.IsBuiltin():
		if isIdent && len(c.Args) > 1 && (f.Name == "min" || f.Name == "max") {
			other := map[string]string{"min": "max", "max": "min"}[f.Name]
			id := r.mutant(c, other)
			name := strings.ToUpper(f.Name[:1]) + f.Name[1:]
			r.opening = append(r.opening, edit{at: r.offset(f.Pos()), cut: len(f.Name) + 1, other: r.offset(c.End()), text: fmt.Sprintf("mutate%s(%d, ", name, id)})
		}
	case fun.IsType():
	default:
		if s, ok := fun.Type.Underlying().(*types.Signature); ok {
			r.arguments(c, s)
		}
	}
}

func (r *rewriter) arguments(c *ast.CallExpr, s *types.Signature) {
	fixed := s.Params().Len()
	if s.Variadic() {
		fixed--
	}
	for i := range min(fixed, len(c.Args)) {
		of := func(i int) types.Type { return s.Params().At(i).Type() }
		if r.isDuration(c.Args[i]) && isNamed(of(i), "time", "Duration") {
			r.wrap(c.Args[i], "longer", "mutateLonger(%d, ", ")")
		}
		if i+1 < min(fixed, len(c.Args)) && types.Identical(of(i), of(i+1)) && !isSymmetric(c.Fun) {
			r.swap(c.Args[i], c.Args[i+1])
		}
	}
}

// swap has two arguments change places. Each is read twice then, so they are names and
// literals.
func (r *rewriter) swap(a, b ast.Expr) {
	of, other := r.info.TypeOf(a), r.info.TypeOf(b)
	x, y := r.text(a), r.text(b)
	if !isPlain(a) || !isPlain(b) || x == y || !types.Identical(of, other) {
		return
	}
	// Two constants without a type of their own have that of Go's choice in a call of a
	// generic function.
	if basic, ok := of.(*types.Basic); r.isConstant(a) && r.isConstant(b) && (!ok || basic.Kind() != types.String && basic.Kind() != types.Int) {
		return
	}
	id := r.mutant(a, "swapped with "+y)
	r.around(a, fmt.Sprintf("mutatePick(%d, ", id), ", "+y+")")
	r.around(b, fmt.Sprintf("mutatePick(%d, ", id), ", "+x+")")
}

// isPlain says that to read an expression twice is to read it once.
func isPlain(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name != "nil"
	case *ast.BasicLit:
		return true
	case *ast.SelectorExpr:
		return isPlain(e.X)
	}
	return false
}

// isSymmetric says that a function's name promises the same result for swapped arguments.
func isSymmetric(fun ast.Expr) bool {
	name := ""
	switch f := fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	for _, word := range []string{"Equal", "equal", "Same", "same", "Max", "Min"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// errors makes a function return no error, or another one, which errors.Is and errors.As do
// not match. Functions within it are visited by themselves.
func (r *rewriter) errors(t *ast.FuncType, body *ast.BlockStmt) {
	var results []bool // is it an error?
	if t.Results != nil {
		for _, f := range t.Results.List {
			for range max(len(f.Names), 1) {
				results = append(results, r.isError(f.Type))
			}
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			if len(n.Results) != len(results) { // none is named, or they are those of a call
				break
			}
			for i, e := range n.Results {
				if results[i] && !isName(e, "nil") {
					r.wrap(e, "no error", "mutateNoError(%d, ", ")")
					r.wrap(e, "another error", "mutateOtherError(%d, ", ")")
				}
			}
		}
		return true
	})
}

// statements leaves out what can be left out: what does something and ends
// nothing.
func (r *rewriter) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if r.isLog(s.X) || isPanic(s.X) || isLock(s.X) {
				continue
			}
		case *ast.DeferStmt:
			if r.isLog(s.Call) || isLock(s.Call) {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || len(s.Lhs) == 1 && isName(s.Lhs[0], "_") {
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

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func isPanic(e ast.Expr) bool {
	c, ok := e.(*ast.CallExpr)
	return ok && isName(c.Fun, "panic")
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
