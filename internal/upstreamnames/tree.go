package upstreamnames

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Tree is the source of a module, read on demand. It is not safe for concurrent use.
type Tree struct {
	dir, module string
	fset        *token.FileSet
	packages    map[string]*pkg // by directory
}

// NewTree returns the source of a module in dir. It reads nothing yet.
func NewTree(dir, module string) *Tree {
	return &Tree{dir: dir, module: module, fset: token.NewFileSet(), packages: make(map[string]*pkg)}
}

// path is a directory of the tree.
func (t *Tree) path(dir string) string { return filepath.Join(t.dir, dir) }

// pkg has a package's files without tests, and their named declarations.
type pkg struct {
	files   []*ast.File
	imports map[*ast.File]map[string]string // the import paths of a file, by the name that it uses
	values  map[string]value                // constants and variables of the package
	calls   map[string][]call               // calls of functions, by the function's last name
}

// value is an expression and the file that it is in.
type value struct {
	expr ast.Expr
	file *ast.File
}

// call is a call, and where it is.
type call struct {
	expr  *ast.CallExpr
	scope scope
}

// scope is where an expression is evaluated.
type scope struct {
	pkg  *pkg
	file *ast.File
	// functions are the functions around the expression, innermost last.
	functions []function
	// args are the values of parameters of these functions.
	args map[string]argument
}

// argument is one argument of a call, and where it is evaluated.
type argument struct {
	expr  ast.Expr
	scope scope
}

// function is a function with a name by which it is called; "" for none.
type function struct {
	name   string
	params []string
	body   *ast.BlockStmt
}

// walk calls do for each package in dirs (relative to the tree) and below, without tests,
// testdata and modules of their own.
func (t *Tree) walk(dirs []string, do func(*pkg) error) error {
	for _, dir := range dirs {
		root := t.path(dir)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if path != root {
				if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || d.Name() == "testdata" || d.Name() == "testing" || strings.HasPrefix(d.Name(), ".") {
					return filepath.SkipDir
				}
			}
			p, err := t.load(path)
			if err != nil || p == nil {
				return err
			}
			return do(p)
		})
		if err != nil {
			return fmt.Errorf("read the source in %s: %w", root, err)
		}
	}
	return nil
}

// load parses the package in a directory; nil if the directory has no Go source.
func (t *Tree) load(dir string) (*pkg, error) {
	if p, known := t.packages[dir]; known {
		return p, nil
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	p := &pkg{imports: make(map[*ast.File]map[string]string), values: make(map[string]value), calls: make(map[string][]call)}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_windows.go") || strings.HasSuffix(name, "_others.go") || strings.HasSuffix(name, "_unsupported.go") {
			continue
		}
		f, err := parser.ParseFile(t.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.add(f)
	}
	if len(p.files) == 0 {
		p = nil
	}
	t.packages[dir] = p
	return p, nil
}

func (p *pkg) add(f *ast.File) {
	p.files = append(p.files, f)
	imports := make(map[string]string)
	p.imports[f] = imports
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the compiler complains
		}
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = path
	}
	for _, decl := range f.Decls {
		if g, ok := decl.(*ast.GenDecl); ok {
			for _, spec := range g.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && len(v.Values) == len(v.Names) {
					for i, name := range v.Names {
						p.values[name.Name] = value{v.Values[i], f}
					}
				}
			}
		}
	}
	p.eachCall(f, func(c call) {
		if name := lastName(c.expr.Fun); name != "" {
			p.calls[name] = append(p.calls[name], c)
		}
	})
}

// eachCall calls do for each call in a file.
func (p *pkg) eachCall(f *ast.File, do func(call)) {
	var around []function
	var visit func(n ast.Node)
	within := func(fn function, body ast.Node) {
		around = append(around[:len(around):len(around)], fn)
		visit(body)
		around = around[:len(around)-1]
	}
	// literals are function literals with the name that they were assigned to.
	literals := make(map[*ast.FuncLit]string)
	visit = func(root ast.Node) {
		ast.Inspect(root, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, right := range n.Rhs {
					if lit, ok := right.(*ast.FuncLit); ok && i < len(n.Lhs) {
						literals[lit] = lastName(n.Lhs[i])
					}
				}
			case *ast.FuncLit:
				within(function{literals[n], params(n.Type), n.Body}, n.Body)
				return false
			case *ast.CallExpr:
				do(call{n, scope{pkg: p, file: f, functions: around}})
			}
			return true
		})
	}
	for _, decl := range f.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			within(function{fn.Name.Name, params(fn.Type), fn.Body}, fn.Body)
		} else {
			visit(decl)
		}
	}
}

// params are the names of a function's parameters, in order.
func params(of *ast.FuncType) (names []string) {
	for _, field := range of.Params.List {
		if len(field.Names) == 0 {
			names = append(names, "_")
		}
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

// lastName returns the name in an identifier or selector, without package or receiver.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

var errUnknown = errors.New("cannot be evaluated")

// errorAt says where an expression is that cannot be evaluated.
func (t *Tree) errorAt(e ast.Node, what string) error {
	at := t.fset.Position(e.Pos())
	return fmt.Errorf("%s:%d: %s %w", at.Filename, at.Line, what, errUnknown)
}
