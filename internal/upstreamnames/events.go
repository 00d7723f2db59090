package upstreamnames

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// Constants returns the values of the exported string constants of one package.
func (t *Tree) Constants(dir string) (map[string]bool, error) {
	values := make(map[string]bool)
	p, err := t.load(t.path(dir))
	if err != nil || p == nil {
		return nil, err
	}
	for name, v := range p.values {
		if s, ok := t.text(v.expr, scope{pkg: p, file: v.file}, 0); ok && ast.IsExported(name) {
			values[s] = true
		}
	}
	return values, nil
}

// Literals returns the values of all string literals in one package.
func (t *Tree) Literals(dir string) (map[string]bool, error) {
	found := make(map[string]bool)
	p, err := t.load(t.path(dir))
	if err != nil || p == nil {
		return nil, err
	}
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok {
				if s, ok := t.text(lit, scope{pkg: p, file: f}, 0); ok {
					found[s] = true
				}
			}
			return true
		})
	}
	return found, nil
}

// reasonAt maps methods and functions that record an event to the index of the reason among
// their arguments.
type reasonAt map[string]int

// Upstream's recorders take an object, a type and a reason.
var upstreamRecorders = reasonAt{"Event": 2, "Eventf": 2, "AnnotatedEventf": 3}

// Podd's are in package events; the others pass a reason on to them.
var poddRecorders = reasonAt{"Event": 2, "ContainerEvent": 3, "NodeEvent": 1, "ClaimEvent": 2, "RecordEvent": 1, "recordWarning": 2, "recordFailure": 2}

// UpstreamReasons returns the reasons of the events that the packages in dirs and below record.
// It leaves out computed reasons.
func (t *Tree) UpstreamReasons(dirs ...string) (map[string]bool, error) {
	return t.reasons(upstreamRecorders, false, dirs)
}

// PoddReasons returns the reasons that podd's packages in dirs and below may record. Some reach
// the recorder through a value: a verdict, an error, a warning. Therefore every constant with
// "reason" in its name counts, too, and every text that is assigned or passed to something with
// such a name.
func (t *Tree) PoddReasons(dirs ...string) (map[string]bool, error) {
	return t.reasons(poddRecorders, true, dirs)
}

func (t *Tree) reasons(recorders reasonAt, values bool, dirs []string) (map[string]bool, error) {
	found := make(map[string]bool)
	err := t.walk(dirs, func(p *pkg) error {
		for _, f := range p.files {
			p.eachCall(f, func(c call) {
				name := lastName(c.expr.Fun)
				at, ok := recorders[name]
				if ok && len(c.expr.Args) > at {
					t.addReasons(found, c.expr.Args[at], c.scope, 0)
				} else if values && takesReason(name) {
					for _, arg := range c.expr.Args {
						t.addReasons(found, arg, c.scope, maxDepth)
					}
				}
			})
			if values {
				t.reasonValues(p, f, found)
			}
		}
		return nil
	})
	return found, err
}

// takesReason says that a function's name suggests that it takes a reason or records an event.
func takesReason(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "reason") || strings.Contains(name, "event") || strings.HasPrefix(name, "record") || strings.HasPrefix(name, "report")
}

// addReasons adds the possible values of an argument: one reason, or one for each call of the
// function around it.
func (t *Tree) addReasons(found map[string]bool, e ast.Expr, in scope, depth int) {
	if s, ok := t.text(e, in, 0); ok {
		if isReason(s) {
			found[s] = true
		}
		return
	}
	if fn, ok := parameter(e, in); ok && depth < maxDepth {
		for _, s := range callers(fn, in) {
			t.addReasons(found, e, s, depth+1)
		}
	}
}

// reasonValues adds what is assigned to something with "reason" in its name, and the texts in
// tables of reasons.
func (t *Tree) reasonValues(p *pkg, f *ast.File, found map[string]bool) {
	in := scope{pkg: p, file: f}
	named := func(e ast.Expr) bool { return e != nil && strings.Contains(strings.ToLower(lastName(e)), "reason") }
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if named(n.Key) {
				t.addReasons(found, n.Value, in, maxDepth)
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) && named(name) {
					t.addReasons(found, n.Values[i], in, maxDepth)
				}
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if i < len(n.Rhs) && named(left) {
					t.addReasons(found, n.Rhs[i], in, maxDepth)
				}
			}
		case *ast.CompositeLit: // map[…][2]string{…}, []string{…} of words
			if a, ok := n.Type.(*ast.ArrayType); n.Type == nil || ok && lastName(a.Elt) == "string" {
				for _, e := range n.Elts {
					t.addReasons(found, e, in, maxDepth)
				}
			}
		case *ast.BinaryExpr: // "Resize" + p.Reason
			if prefix, ok := t.text(n.X, in, 0); ok && n.Op == token.ADD && named(n.Y) {
				found[prefix+"*"] = true
			}
		}
		return true
	})
}

var reason = regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`)

// isReason says that a text has the form of a reason, and is not an event type.
func isReason(s string) bool { return reason.MatchString(s) && s != "Normal" && s != "Warning" }
