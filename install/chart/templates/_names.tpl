{{/* The DaemonSet's name is fixed, because the plugin recognizes the agent's pods by this name, and always lets them start. */}}
{{- define "sluice.daemonSet" -}}sluice-node{{- end -}}

{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{- end -}}

{{/* Labels that Istio's operator sets. */}}
{{- define "sluice.istioLabels" -}}
istio.io/rev: {{ .revision | default "default" | quote }}
install.operator.istio.io/owning-resource: {{ .ownerName | default "unknown" | quote }}
operator.istio.io/component: Cni
{{- end -}}

{{- define "sluice.image" -}}
{{- $v := .v -}}
{{- if contains "/" $v.image -}}
{{- $v.image -}}
{{- else -}}
{{- $tag := coalesce $v.tag $v.global.tag .Chart.AppVersion -}}
{{- if and (kindIs "float64" $tag) (eq (floor $tag) $tag) -}}
{{- /* YAML decodes a tag that has only digits, such as the commit hash 44624469, as a number, which would be printed as 4.4624469e+07. */ -}}
{{- $tag = int64 $tag -}}
{{- end -}}
{{- printf "%s/%s:%s" ($v.hub | default $v.global.hub) $v.image (toString $tag) -}}
{{- if and $v.digest (not (coalesce $v.tag $v.global.tag)) -}}@{{ $v.digest }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* sluice.capabilities returns the capabilities that the enabled features need, as a YAML list. */}}
{{- define "sluice.capabilities" -}}
{{- $capabilities := list -}}
{{- if .dacOverride -}}{{- $capabilities = append $capabilities "DAC_OVERRIDE" -}}{{- end -}}
{{- if .entersPods -}}
{{- $capabilities = concat $capabilities (list "NET_ADMIN" "SYS_ADMIN") -}}
{{- if or (ne .backend "nft") .ambient.enabled -}}{{- $capabilities = append $capabilities "NET_RAW" -}}{{- end -}}
{{- if or .audit.enabled .ambient.enabled -}}{{- $capabilities = append $capabilities "NET_BROADCAST" -}}{{- end -}}
{{- end -}}
{{- if .readsProc -}}{{- $capabilities = append $capabilities "SYS_PTRACE" -}}
{{- end -}}
{{- sortAlpha $capabilities | toYaml -}}
{{- end -}}
