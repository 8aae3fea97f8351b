{{/* Name of the operator's objects: the release's, which is unique in its namespace. */}}
{{- define "tussock.name" -}}
{{- printf "%s-operator" (.Release.Name | trunc 50 | trimSuffix "-") -}}
{{- end -}}

{{/* Name of what is shared by the cluster: unique over namespaces too. */}}
{{- define "tussock.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "tussock.name" .) -}}
{{- end -}}

{{- define "tussock.selector" -}}
app.kubernetes.io/name: tussock-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "tussock.labels" -}}
{{ include "tussock.selector" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* An image: (list $ name tag). */}}
{{- define "tussock.image" -}}
{{- $root := index . 0 -}}
{{- $tag := index . 2 | default $root.Chart.AppVersion -}}
{{- with $root.Values.image.registry }}{{ . }}/{{ end }}{{ index . 1 }}:{{ $tag }}
{{- end -}}

{{/* Of an endpoint of a PodMonitor: series have the label `store`, by which alerts tell stores apart. */}}
{{- define "tussock.storeLabel" -}}
relabelings:
- sourceLabels: [__meta_kubernetes_pod_label_tussock_dev_store]
  targetLabel: store
{{- end }}
