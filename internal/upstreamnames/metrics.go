package upstreamnames

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// Metric is a metric's declaration.
type Metric struct {
	// Type is counter, gauge, histogram or summary; "" for a descriptor, which does not say.
	Type string
	// Labels are sorted, constant ones included.
	Labels []string
	// At is the directory in the tree of the package that declares it.
	At string
}

// Metrics returns the metrics that the packages in dirs and below declare, by full name. There
// is an error for each declaration whose name or labels cannot be evaluated, and for each that
// contradicts another one of the same name.
func (t *Tree) Metrics(dirs ...string) (found map[string]Metric, errs []error) {
	found = make(map[string]Metric)
	err := t.walk(dirs, func(p *pkg) error {
		for _, f := range p.files {
			p.eachCall(f, func(c call) {
				if err := t.declared(c, found, 0); err != nil {
					errs = append(errs, err)
				}
			})
		}
		return nil
	})
	if err != nil {
		errs = append(errs, err)
	}
	return found, errs
}

var constructor = regexp.MustCompile(`^New(Counter|Gauge|Histogram|Summary|TimingHistogram)(Vec|Func)?$`)

// declared adds the metric that a call declares, if it declares one.
func (t *Tree) declared(c call, found map[string]Metric, depth int) error {
	name := lastName(c.expr.Fun)
	if name == "NewDesc" && len(c.expr.Args) >= 4 {
		return t.add(found, declaration{c, "", c.expr.Args[:1], c.expr.Args[2:4]}, depth)
	}
	m := constructor.FindStringSubmatch(name)
	if m == nil || len(c.expr.Args) == 0 {
		return nil
	}
	opts := options(c.expr.Args[0])
	if opts == nil {
		return nil
	}
	d := declaration{call: c, kind: strings.ToLower(m[1])}
	for _, key := range []string{"Namespace", "Subsystem", "Name"} {
		if e := opts[key]; e != nil {
			d.name = append(d.name, e)
		}
	}
	if e := opts["ConstLabels"]; e != nil {
		d.labels = append(d.labels, e)
	}
	if m[2] == "Vec" && len(c.expr.Args) > 1 {
		d.labels = append(d.labels, c.expr.Args[1])
	}
	return t.add(found, d, depth)
}

// declaration is a metric's declaration: the parts of its name, and its lists of labels.
type declaration struct {
	call   call
	kind   string
	name   []ast.Expr
	labels []ast.Expr
}

// add evaluates a declaration. If it depends on a parameter of a function around it, add
// evaluates it for each call of that function.
func (t *Tree) add(found map[string]Metric, d declaration, depth int) error {
	in := d.call.scope
	if depth < maxDepth {
		for _, e := range slices.Concat(d.name, d.labels) {
			if fn, ok := parameter(e, in); ok {
				for _, s := range callers(fn, in) {
					d.call.scope = s
					if err := t.add(found, d, depth+1); err != nil {
						return err
					}
				}
				return nil
			}
		}
	}
	var parts []string
	for _, e := range d.name {
		part, ok := t.text(e, in, 0)
		if !ok {
			return t.errorAt(e, "the name of a metric")
		}
		parts = append(parts, part)
	}
	m := Metric{Type: d.kind, At: t.place(d.call.expr)}
	for _, e := range d.labels {
		list, ok := t.texts(e, in, 0)
		if !ok {
			return t.errorAt(e, "the labels of a metric")
		}
		m.Labels = append(m.Labels, list...)
	}
	slices.Sort(m.Labels)
	name := fullName(parts...)
	if before, again := found[name]; again && (before.Type != m.Type || !slices.Equal(before.Labels, m.Labels)) {
		return fmt.Errorf("metric %s is declared in %s and, otherwise, in %s", name, before.At, m.At)
	}
	found[name] = m
	return nil
}

// options returns the fields of a metric's options; nil if e is not such a literal.
func options(e ast.Expr) map[string]ast.Expr {
	if u, ok := e.(*ast.UnaryExpr); ok {
		e = u.X
	}
	lit, ok := e.(*ast.CompositeLit)
	if !ok || !strings.HasSuffix(lastName(lit.Type), "Opts") {
		return nil
	}
	fields := make(map[string]ast.Expr)
	for _, elem := range lit.Elts {
		if kv, ok := elem.(*ast.KeyValueExpr); ok {
			fields[lastName(kv.Key)] = kv.Value
		}
	}
	return fields
}

// place is the directory of a package, relative to the tree.
func (t *Tree) place(n ast.Node) string {
	file := t.fset.Position(n.Pos()).Filename
	dir := strings.TrimPrefix(strings.TrimPrefix(file, t.dir), "/")
	return dir[:max(strings.LastIndex(dir, "/"), 0)]
}
