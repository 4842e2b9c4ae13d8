// Says how GitOps tools judge Kubernetes objects: kstatus, which Flux, kpt and Helm use, and Argo CD's health checks.
//
//	gitops-verdict CHECKS <OBJECTS
//
// CHECKS is a JSON file with the data of an argocd-cm ConfigMap. OBJECTS are JSON objects, one after the other; each
// is answered with a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type verdict struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

type answer struct {
	Kstatus verdict `json:"kstatus"`
	// Absent for a kind without a health check: Argo CD leaves it out of an application's health.
	ArgoCD *verdict `json:"argocd,omitempty"`
}

func main() {
	if len(os.Args) != 2 {
		fail(errors.New("usage: gitops-verdict CHECKS <OBJECTS"))
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	var checks map[string]string
	if err := json.Unmarshal(text, &checks); err != nil {
		fail(fmt.Errorf("%s: %w", os.Args[1], err))
	}
	objects, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var raw json.RawMessage
		if err := objects.Decode(&raw); err == io.EOF {
			return
		} else if err != nil {
			fail(err)
		}
		judged, err := judge(raw, checks)
		if err == nil {
			err = answers.Encode(judged)
		}
		if err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}

func judge(raw []byte, checks map[string]string) (*answer, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	computed, err := status.Compute(object)
	if err != nil {
		return nil, err
	}
	judged := &answer{Kstatus: verdict{computed.Status.String(), computed.Message}}
	kind := object.GroupVersionKind()
	if check, found := checks[fmt.Sprintf("resource.customizations.health.%s_%s", kind.Group, kind.Kind)]; found {
		judged.ArgoCD, err = health(object, check)
	}
	return judged, err
}

// Runs a health check as Argo CD does: with these libraries only, the object as the global obj, and for a second at most.
func health(object *unstructured.Unstructured, check string) (*verdict, error) {
	if object.GetDeletionTimestamp() != nil {
		return &verdict{"Progressing", "Pending deletion"}, nil
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage,
		lua.BaseLibName: lua.OpenBase,
		lua.TabLibName:  lua.OpenTable,
	} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(ctx)
	state.SetGlobal("obj", toLua(state, object.Object))
	if err := state.DoString(check); err != nil {
		return nil, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("the health check returns a %s, not a table", state.Get(-1).Type())
	}
	result := &verdict{}
	table.ForEach(func(key, value lua.LValue) {
		switch key.String() {
		case "status":
			result.Status = value.String()
		case "message":
			result.Message = value.String()
		}
	})
	if !slices.Contains([]string{"Healthy", "Progressing", "Degraded", "Suspended", "Missing"}, result.Status) {
		return nil, fmt.Errorf("the health check says %q", result.Status)
	}
	return result, nil
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case bool:
		return lua.LBool(value)
	case float64:
		return lua.LNumber(value)
	case int64:
		return lua.LNumber(value)
	case string:
		return lua.LString(value)
	case []any:
		table := state.CreateTable(len(value), 0)
		for _, item := range value {
			table.Append(toLua(state, item))
		}
		return table
	case map[string]any:
		table := state.CreateTable(0, len(value))
		for key, item := range value {
			table.RawSetH(lua.LString(key), toLua(state, item))
		}
		return table
	}
	return lua.LNil
}
