{{- define "tenantry.labels" -}}
app.kubernetes.io/name: tenantry
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: tenantry
{{- end }}

{{- define "tenantry.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Who a Pod is, of the installation and of one part. Takes a list: the root and the part. */}}
{{- define "tenantry.selector" -}}
app.kubernetes.io/name: tenantry
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "tenantry.metadata" -}}
name: {{ (index . 0).Release.Name }}-{{ index . 1 }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "tenantry.labels" (index . 0) | nindent 2 }}
  app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* What every Pod has. Takes a list: the root and the part. */}}
{{- define "tenantry.pod" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ $root.Release.Name }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with $root.Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "tenantry.spread" -}}
topologySpreadConstraints:
{{- $labels := include "tenantry.selector" . }}
{{- range (index . 0).Values.topologyKeys }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- $labels | nindent 6 }}
{{- end }}
{{- end }}

{{- define "tenantry.container" -}}
image: {{ include "tenantry.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
envFrom:
- configMapRef: {name: {{ .Release.Name }}-settings}
{{- end }}

{{- define "tenantry.mounts" -}}
- {name: data, mountPath: /srv/data}
- {name: tmp, mountPath: /tmp}
- {name: keys, mountPath: /etc/tenantry/keys, readOnly: true}
- {name: database, mountPath: /etc/tenantry/database, readOnly: true}
- {name: redis, mountPath: /etc/tenantry/redis, readOnly: true}
{{- end }}

{{/* Takes a list: the root, and the entries of the Secret of keys that the part needs. */}}
{{- define "tenantry.volumes" -}}
{{- $root := index . 0 -}}
- {name: tmp, emptyDir: {sizeLimit: 1Gi}}
- name: keys
  secret:
    secretName: {{ $root.Values.secrets.keys }}
    defaultMode: 0440
    items:
    {{- range rest . }}
    - {key: {{ . }}, path: {{ . }}}
    {{- end }}
- name: database
  secret:
    secretName: {{ $root.Values.secrets.database }}
    defaultMode: 0440
    items: [{key: url, path: url}]
- name: redis
  secret:
    secretName: {{ $root.Values.secrets.redis }}
    defaultMode: 0440
    items: [{key: url, path: url}]
{{- end }}

{{- define "tenantry.checksum" -}}
{{ include (print .Template.BasePath "/settings.yaml") . | sha256sum }}
{{- end }}
