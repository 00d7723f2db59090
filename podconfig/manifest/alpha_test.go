package manifest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/features"
)

// othersAlpha are alpha fields of a pod that say nothing to a node, and why.
var othersAlpha = map[string]string{
	"EvictionResponders": "for the controllers of evictions",
	"Namespace":          "of a claim's data source (dataSourceRef): for the controllers that make volumes",
}

// TestEveryAlphaFieldOfAPodIsToldUnlessItsGateIsOn walks upstream's types: a field that a new
// release marks with an alpha gate must be reported, or be nobody's on a node.
func TestEveryAlphaFieldOfAPodIsToldUnlessItsGateIsOn(t *testing.T) {
	marked := gatesOfFields(t)
	stages := map[features.Gate]features.Stage{}
	for _, s := range features.All() {
		stages[s.Name] = s.Stage
	}
	found := 0
	walkFields(reflect.TypeFor[v1.PodSpec](), nil, func(path []reflect.StructField, owner reflect.Type) {
		field := path[len(path)-1]
		gate := features.Gate(marked[owner.Name()+"."+field.Name])
		if gate == "" || stages[gate] != features.Alpha || othersAlpha[field.Name] != "" {
			return
		}
		found++
		name := pathName(path)
		spec := &v1.PodSpec{}
		setPath(reflect.ValueOf(spec).Elem(), path)
		told := Alpha(spec, features.Set{})
		if len(told) == 0 || told[0].Gate != gate && told[0].Gate != probesOnly || !strings.HasSuffix(told[0].Path, jsonName(field)) {
			t.Errorf("%s is alpha (%s), but no problem names it for a pod that sets it: %v", name, gate, told)
			return
		}
		if told[0].Gate == probesOnly || !features.IsHad(gate) {
			if told[0].Hint() != "remove the field" {
				t.Errorf("%s: got %q", name, told[0].Hint())
			}
			return
		}
		if !strings.Contains(told[0].Hint(), string(gate)) {
			t.Errorf("%s: the hint is %q, without the gate %s", name, told[0].Hint(), gate)
		}
		on, wrong := features.New(map[string]bool{string(gate): true})
		if told := Alpha(spec, on); len(wrong) > 0 || len(told) > 0 {
			t.Errorf("%s: with its gate on: %v, %v", name, told, wrong)
		}
	})
	if found < 30 {
		t.Errorf("only %d alpha fields were found: upstream marks them in another way", found)
	}
}

// gatesOfFields reads the markers +featureGate=Name of k8s.io/api/core/v1, by "Type.Field".
func gatesOfFields(t *testing.T) map[string]string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "k8s.io/api/core/v1").Output()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), strings.TrimSpace(string(dir))+"/types.go", nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	marker := regexp.MustCompile(`\+featureGate=(\w+)`)
	gates := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				if m := marker.FindStringSubmatch(f.Doc.Text()); m != nil && len(f.Names) == 1 {
					gates[spec.Name.Name+"."+f.Names[0].Name] = m[1]
				}
			}
		}
		return true
	})
	return gates
}

// walkFields visits each field below a type, once on each way to it.
func walkFields(t reflect.Type, above []reflect.StructField, visit func(path []reflect.StructField, owner reflect.Type)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || len(above) > 8 {
		return
	}
	for f := range t.Fields() {
		if f.Name == "EphemeralContainers" { // never in a manifest, nor started with the pod
			continue
		}
		path := append(slices.Clone(above), f)
		visit(path, t)
		walkFields(f.Type, path, visit)
	}
}

// setPath sets the last field of a path to something that is not its zero value.
func setPath(v reflect.Value, path []reflect.StructField) {
	for _, f := range path {
		switch v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			v = v.Elem()
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			v = v.Index(0)
		}
		v = v.FieldByIndex(f.Index)
	}
	switch last := path[len(path)-1]; last.Name {
	case "Protocol":
		v.Set(reflect.New(v.Type().Elem()))
		v.Elem().SetString(string(v1.HTTPProtocolHTTP2))
	case "Mode":
		v.Set(reflect.New(v.Type().Elem()))
		if v.Elem().Kind() == reflect.String {
			v.Elem().SetString(string(v1.GRPCProbeModeTLS))
		}
	default:
		set(v, 0)
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func pathName(path []reflect.StructField) string {
	var names []string
	for _, f := range path {
		if n := jsonName(f); n != "" {
			names = append(names, n)
		}
	}
	return strings.Join(names, ".")
}
