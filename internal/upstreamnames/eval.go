package upstreamnames

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// maxDepth bounds how many names and calls an evaluation follows.
const maxDepth = 8

// definition finds what a name stands for: an argument, a variable of the functions around
// it, or one of its package or of another package in the tree.
func (t *Tree) definition(e ast.Expr, in scope) (def ast.Expr, at scope, ok bool) {
	switch e := e.(type) {
	case *ast.Ident:
		if arg, ok := in.args[e.Name]; ok {
			return arg.expr, arg.scope, true
		}
		for i := len(in.functions) - 1; i >= 0; i-- {
			if def := assigned(in.functions[i].body, e.Name); def != nil {
				return def, in, true
			}
		}
		if v, ok := in.pkg.values[e.Name]; ok {
			return v.expr, scope{pkg: in.pkg, file: v.file}, true
		}
	case *ast.SelectorExpr:
		name, ok := e.X.(*ast.Ident)
		if !ok {
			return nil, scope{}, false
		}
		path, ok := strings.CutPrefix(in.pkg.imports[in.file][name.Name], t.module+"/")
		if !ok {
			return nil, scope{}, false
		}
		p, err := t.load(t.path(path))
		if err != nil || p == nil {
			return nil, scope{}, false
		}
		if v, ok := p.values[e.Sel.Name]; ok {
			return v.expr, scope{pkg: p, file: v.file}, true
		}
	}
	return nil, scope{}, false
}

// assigned returns the first value that a function assigns to a local variable or constant.
func assigned(body *ast.BlockStmt, name string) (found ast.Expr) {
	ast.Inspect(body, func(n ast.Node) bool {
		if found != nil {
			return false
		}
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE && id.Name == name && len(n.Lhs) == len(n.Rhs) {
					found = n.Rhs[i]
				}
			}
		case *ast.ValueSpec:
			for i, id := range n.Names {
				if id.Name == name && i < len(n.Values) {
					found = n.Values[i]
				}
			}
		}
		return true
	})
	return found
}

// text evaluates an expression that is a constant string.
func (t *Tree) text(e ast.Expr, in scope, depth int) (string, bool) {
	if depth > maxDepth {
		return "", false
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		s, err := strconv.Unquote(e.Value)
		return s, err == nil
	case *ast.ParenExpr:
		return t.text(e.X, in, depth+1)
	case *ast.BinaryExpr:
		x, okX := t.text(e.X, in, depth+1)
		y, okY := t.text(e.Y, in, depth+1)
		return x + y, okX && okY && e.Op == token.ADD
	case *ast.CallExpr:
		if len(e.Args) == 1 { // a conversion
			if name := lastName(e.Fun); name == "string" {
				return t.text(e.Args[0], in, depth+1)
			}
		}
		if lastName(e.Fun) == "BuildFQName" {
			var parts []string
			for _, arg := range e.Args {
				part, ok := t.text(arg, in, depth+1)
				if !ok {
					return "", false
				}
				parts = append(parts, part)
			}
			return fullName(parts...), true
		}
		return "", false
	}
	if def, at, ok := t.definition(e, in); ok {
		return t.text(def, at, depth+1)
	}
	return "", false
}

// texts evaluates an expression that is a list of constant strings, or nil, or the keys of a
// map with such keys.
func (t *Tree) texts(e ast.Expr, in scope, depth int) (list []string, ok bool) {
	if depth > maxDepth {
		return nil, false
	}
	if id, ok := e.(*ast.Ident); ok && id.Name == "nil" {
		return nil, true
	}
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		if def, at, ok := t.definition(e, in); ok {
			return t.texts(def, at, depth+1)
		}
		return nil, false
	}
	for _, elem := range lit.Elts {
		if kv, ok := elem.(*ast.KeyValueExpr); ok {
			elem = kv.Key
		}
		s, ok := t.text(elem, in, depth+1)
		if !ok {
			return nil, false
		}
		list = append(list, s)
	}
	return list, true
}

// fullName joins the parts that are not empty with underscores, as Prometheus does.
func fullName(parts ...string) string {
	var some []string
	for _, p := range parts {
		if p != "" {
			some = append(some, p)
		}
	}
	return strings.Join(some, "_")
}

// parameter returns the function around an expression that has a parameter in it without a
// known argument. The expression can only be evaluated for a call of that function.
func parameter(e ast.Expr, in scope) (fn function, found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && !found {
			for i := len(in.functions) - 1; i >= 0; i-- {
				for _, p := range in.functions[i].params {
					if p == id.Name && in.functions[i].name != "" {
						if _, given := in.args[p]; !given {
							fn, found = in.functions[i], true
						}
					}
				}
			}
		}
		return !found
	})
	return fn, found
}

// callers returns one scope for each call of a function in its package. In it, the function's
// parameters have the arguments of that call.
func callers(fn function, in scope) (scopes []scope) {
	for _, c := range in.pkg.calls[fn.name] {
		if len(c.expr.Args) != len(fn.params) {
			continue
		}
		args := make(map[string]argument, len(fn.params)+len(in.args))
		for name, arg := range in.args {
			args[name] = arg
		}
		for i, name := range fn.params {
			args[name] = argument{c.expr.Args[i], c.scope}
		}
		s := in
		s.args = args
		scopes = append(scopes, s)
	}
	return scopes
}
