{{/*
What would leave an installation half done. `helm template` sees no cluster, so it skips the checks of the cluster.
*/}}
{{- define "eno.checks" -}}
{{- if ne .Release.Namespace "eno-system" }}
{{- fail (printf "the release is in the namespace %s; install it with --namespace eno-system --create-namespace" .Release.Namespace) }}
{{- end }}
{{- if and .Values.admission (semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "the value admission needs Kubernetes 1.36; this is %s; set it to false: the engine then writes finalizers itself" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- $record := lookup "v1" "ConfigMap" "eno-system" "eno-install" }}
{{- if $record }}
{{- $release := dig "data" "release" "" $record }}
{{- if and (not $release) (not .Values.takeOver) }}
{{- fail (printf "eno install has installed ENO %s in this cluster; upgrade it with eno install, or take it over with --take-ownership --set takeOver=true: keys and networks stay" $record.data.version) }}
{{- end }}
{{- if not $release }}
{{- range $key, $value := dig "data" dict (lookup "v1" "Secret" "eno-system" "eno-nats") }}
{{- if contains ".next." $key }}
{{- fail "eno rotate has not come to its end; run it again, and take over then" }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $release (ne $release .Release.Name) }}
{{- fail (printf "the release %s has installed ENO in this cluster already; upgrade that one, or uninstall it first: networks stay" $release) }}
{{- end }}
{{- include "eno.checkVersion" (list (printf "the cluster has ENO %s" $record.data.version) $record.data.version .Chart.AppVersion) }}
{{- $before := index (fromYaml (index $record.data "values.yaml")) "nats" }}
{{- range $key := list "replicas" "storageClass" "storageSize" }}
{{- $old := index $before $key }}
{{- $new := index $.Values.nats $key }}
{{- if ne (toString $old) (toString $new) }}
{{- fail (printf "nats.%s can't be changed after the installation; set it back to %v" $key $old) }}
{{- end }}
{{- end }}
{{- end }}
{{- $definition := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "l2services.eno.k8s.io" }}
{{- $version := dig "metadata" "annotations" "eno.k8s.io/version" "" $definition }}
{{- if $version }}
{{- include "eno.checkVersion" (list (printf "the definitions of kinds in the cluster are those of ENO %s" $version) $version .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/*
Arguments: what has a version, that version, and the version of this chart.
*/}}
{{- define "eno.checkVersion" -}}
{{- $what := index . 0 }}
{{- $there := semver (index . 1) }}
{{- $this := semver (index . 2) }}
{{- if gt ($there.Compare $this) 0 }}
{{- fail (printf "%s, which is newer than this chart, %s; use the chart of %s or later: a downgrade is not supported" $what $this.Original $there.Original) }}
{{- end }}
{{- if or (ne $there.Major $this.Major) (lt (int (add1 $there.Minor)) (int $this.Minor)) }}
{{- fail (printf "%s; this chart, %s, can't upgrade it in one step; upgrade one minor version after the other" $what $this.Original) }}
{{- end }}
{{- end }}

{{/*
Whether the Secret has the key that all agents of an earlier version share. The agents log in by it until their pods are
replaced. `helm template` sees no cluster, and leaves the key out.
*/}}
{{- define "eno.sharedAgentKey" -}}
{{- if dig "data" "agent.pub" "" (lookup "v1" "Secret" "eno-system" "eno-nats") }}true{{ end }}
{{- end }}
